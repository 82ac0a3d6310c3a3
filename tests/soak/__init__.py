"""A long soak: an application that writes, and all that is done to its archive, for as long as one likes."""
