"""Shard keys compared on a sample: where data and writes go, which queries reach one shard, the commands."""
