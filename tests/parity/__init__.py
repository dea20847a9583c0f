"""One corpus of steps over every surface: the library, the client, HTTP and the command line say the same."""
