"""Programs that run on the untrusted side: the fork server, the walls and the loop inside a worker.

Standard library only, and no import from the rest of the project: the fork server is a fresh process that loads this
folder by path (``start.py``) and must not drag the daemon's modules, let alone its secrets, into a worker's memory.
"""
