"""The command ``anabranch``: one file a command."""
