"""Which worker of pytest-xdist runs what."""

SESSIONS = 2  # workers that start a session of Spark


def shares_spark(nodeid):
    """Does a test use the session of Spark of its worker? Others that are about Spark start processes of their own."""
    file = nodeid.partition("::")[0]
    alone = ("test_cluster.py", "test_connect.py", "test_live_cluster.py", "test_faults.py", "test_java.py")
    return ("spark" in file or file.endswith("docs/test_docs.py")) and not file.endswith(alone)


def scope_of(nodeid):
    """Return what runs on one worker: a file, or all tests that share a broker of Kafka.

    Tests of a file use the same kernels: two workers would compile them twice.
    """
    return "spark, kafka" if shares_spark(nodeid) and "kafka" in nodeid else nodeid.partition("::")[0]


def scheduler(config, log):
    """Return a scheduler that gives tests on Spark to two workers, which go on with others when these are done."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False

    class TwoSparks(LoadScopeScheduling):
        sparks = ()

        def _split_scope(self, nodeid):
            return scope_of(nodeid)

        def _assign_work_unit(self, node):
            self.sparks = [one for one in self.sparks if one in self.assigned_work]
            scope = next_scope(list(self.workqueue), node in self.sparks or len(self.sparks) < SESSIONS)
            if scope is None:
                return  # the others finish
            if shares_spark(scope) and node not in self.sparks:
                self.sparks.append(node)
            self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

    return TwoSparks(config, log)


def next_scope(waiting, on_spark):
    """Return the next of the *waiting* scopes for a worker that may run tests on Spark, or may not; None to wait."""
    spark = [scope for scope in waiting if shares_spark(scope)]
    if on_spark and spark:
        return spark[0]
    return next((scope for scope in waiting if scope not in spark), None)
