"""Archives: export, verify, commit, guarded delete; restore, verify and audit."""

import os

#: Arrow's other allocators keep freed memory where numpy can't use it: a fifth of a run's memory.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
