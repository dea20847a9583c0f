"""Policy: who may do what to which branch and type, decided by Cedar from a bundle of rules in YAML.

May import the engine's hook and everything below it; `cedarpy` is imported when the first bundle is compiled.
"""

from omnigraph.policy.bundle import Bundle, BundleScope, Rule, parse_bundle
from omnigraph.policy.policy import Case, Decision, Outcome, Policy, load_bundle, load_cases, run_cases

__all__ = [
    "Bundle",
    "BundleScope",
    "Case",
    "Decision",
    "Outcome",
    "Policy",
    "Rule",
    "load_bundle",
    "load_cases",
    "parse_bundle",
    "run_cases",
]
