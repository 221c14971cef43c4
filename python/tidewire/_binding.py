"""The one place that imports the compiled part."""

from tidewire._tidewire import *
