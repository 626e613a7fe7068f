/* Rules of a breaker for a test, in one line; the rate rules are off. */
#ifndef RESIL_TESTS_CORE_RULES_H
#define RESIL_TESTS_CORE_RULES_H

#define RULES(failures, successes, probes, recovery, max, backoff, jitter, probe, observed)                            \
	{                                                                                                              \
		.failure_threshold = (failures), .success_threshold = (successes), .half_open_max_calls = (probes),    \
		.recovery_ms = (recovery), .recovery_max_ms = (max), .backoff_percent = (backoff),                     \
		.jitter_percent = (jitter), .probe_timeout_ms = (probe), .is_observed = (observed),                    \
	}

#endif
