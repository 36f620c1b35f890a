"""`python -m torchreel`: the command line, where the script of that name is not in PATH."""

from torchreel.cli import main

if __name__ == "__main__":
    main()
