"""Step traces of a run: write them, read them, summarise and draw them.

Owns the public names of the trace tools; it does not decide what a step records
(``records.py`` does) nor when one is written (the scheduler does).
"""

from __future__ import annotations

from minedraft.trace.perfetto import write_perfetto
from minedraft.trace.reader import read_trace
from minedraft.trace.records import TRACE_VERSION, StepMode, StepRecord, TraceHeader
from minedraft.trace.summary import Summary, summarize
from minedraft.trace.timeline import draw_timeline
from minedraft.trace.writer import TraceSink, TraceWriter

__all__ = [
    "TRACE_VERSION",
    "StepMode",
    "StepRecord",
    "Summary",
    "TraceHeader",
    "TraceSink",
    "TraceWriter",
    "draw_timeline",
    "read_trace",
    "summarize",
    "write_perfetto",
]
