"""The warm worker, a separate process: it forks a child for every case and watches it.

Lives here: serving tasks (`server`), watching a child (`watch`), what is done once so that no child
pays for it (`warm_up`), what verdicts depend on besides the case (`environment`). Not here: what
the child does (`oracle.child`), the process that sends the tasks (`oracle.worker_oracle`).
"""
