"""`bucketwise plan`: what a run would do, by today's policy file or by another one."""
