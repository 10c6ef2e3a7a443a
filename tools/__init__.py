"""What the Makefile needs beside the package: the hashes of what is installed, and a list of it."""
