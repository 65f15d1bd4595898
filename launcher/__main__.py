"""``python -m launcher`` is the ``launcher`` command."""

from launcher.cli.main import main

if __name__ == "__main__":
    main()
