"""An Azure ML to test with: its interfaces over HTTPS, its storage in Azurite, its jobs as processes of this machine.

``launcher emulator -- COMMAND`` runs a command inside it; the command's Azure SDK is unmodified. What is assumed about
the real service stands in ``assumptions.md``.
"""
