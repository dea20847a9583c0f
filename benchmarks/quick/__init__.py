"""The page in three minutes: every kind of line at a tenth of its size, as a ratio beside a recorded one."""
