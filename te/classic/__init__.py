"""This package has TVM's classic schedules, ``te.create_schedule``, on top of :class:`tilewright.schedule.Schedule`."""
