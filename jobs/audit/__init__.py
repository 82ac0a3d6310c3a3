"""`bucketwise audit`: is every policy kept?"""
