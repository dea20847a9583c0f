"""Schedules of declared pipelines: when runs are due, and a runner that starts them.

`declaration.cron` decides which runs are due; `book` keeps what was run, `child` runs a pipeline in a process of its
own, and `runner` does it all while it holds the lease.
"""
