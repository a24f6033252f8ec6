"""The tuner searches a space of schedules: it scores all candidates at once and measures the best ones.

From a function to a record: :class:`Space` asks the schedule rules (``rules/``) for sketches of the function; a sketch
and a row of integers is a candidate; ``cost_features`` and the analytic prior (``loop_nest``, ``machine_model``)
describe all rows in one NumPy pass, and the :class:`CostModel` learns from what was measured; a :class:`SearchStrategy`
is asked for batches and told the outcome; a :class:`Runner` compiles and times them in worker processes (``measure/``);
the session writes records. :func:`tune` does all of it; :func:`default_schedule` takes the prior's favourite without
measuring.
"""

from .cost.cost_features import FEATURE_NAMES, Costs
from .cost.cost_model import CostModel, PriorModel, XGBCostModel
from .cost.machine_model import MachineModel
from .measure import LocalRunner, MeasureResult, ReferenceFailed, Runner
from .rules import Group, ScheduleFunction, ScheduleRule, default_rules, register_rule
from .rules.schedule_rule import Decision, Part
from .search import Candidate, ModelGuidedSearch, RandomSearch, SearchStrategy
from .search.session import TuningSession, tune
from .search.tune_result import (
    BatchStarted,
    CandidateMeasured,
    FinalComparison,
    Progress,
    SearchEnded,
    SearchStarted,
    TuneOptions,
    TuneResult,
    TuningInterrupted,
)
from .search.warm_start import Transferred, replay, trace_for, transferred
from .space import DefaultSchedule, choose_default, default_schedule
from .space.search_space import Space
from .space.sketch import Sketch

__all__ = [
    "FEATURE_NAMES",
    "BatchStarted",
    "Candidate",
    "CandidateMeasured",
    "CostModel",
    "Costs",
    "Decision",
    "DefaultSchedule",
    "FinalComparison",
    "Group",
    "LocalRunner",
    "MachineModel",
    "MeasureResult",
    "ModelGuidedSearch",
    "Part",
    "PriorModel",
    "Progress",
    "RandomSearch",
    "ReferenceFailed",
    "Runner",
    "ScheduleFunction",
    "ScheduleRule",
    "SearchEnded",
    "SearchStarted",
    "SearchStrategy",
    "Sketch",
    "Space",
    "Transferred",
    "TuneOptions",
    "TuneResult",
    "TuningInterrupted",
    "TuningSession",
    "XGBCostModel",
    "choose_default",
    "default_rules",
    "default_schedule",
    "register_rule",
    "replay",
    "trace_for",
    "transferred",
    "tune",
]
