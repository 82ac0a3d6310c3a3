"""How a process of the command line dies at each step of its work: the table of crash points."""
