"""`python -m nsmbayes`: the command line, where the script is not on the path."""

from nsmbayes.cli import entry

if __name__ == "__main__":
    entry()
