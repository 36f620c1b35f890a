"""The oracle: runs a case in a child process and says whether it fails as wanted.

Three processes take part, and each has its place:

- the parent, which searches: the modules of this folder. `worker_oracle` judges cases, with a
  `slot_pool` over `job_slots`; `command_oracle` runs a command of the user's.
- the worker (`worker`): started once, warm, confined; forks a child for every case.
- the child (`child`): runs one case and writes down what it saw.

`protocol` is what they write to each other, `predicates` the language of a user's question, and
`interface` is all that the callers of an oracle need to know.
"""
