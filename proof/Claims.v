(* Every claim of Statement.v, and what it rests on. proof/check reads what this prints. *)
From Quotient Require Import Statement Sum Division Example.

Check timing_leaves_an_instant : claim_timing.
Check sum_holds : claim_sum.
Check settle_holds : claim_settle.
Check never_over : claim_never_over.
Check loans_add_nothing : claim_loans.
Check true_windows : claim_true_windows.

(* All of them, and the examples, in one term: an axiom behind any would be printed. *)
Definition everything := (timing_leaves_an_instant, sum_holds, settle_holds, never_over,
  loans_add_nothing, true_windows, promise,
  (parts_fit, equal_part_grows, weighted_parts_fit, weighted_parts_sum, weighted_part_grows, demand_part_grows),
  (example_assumed, example_timing, example_obeys, example_issued, without_lookback_it_breaks)).
Print Assumptions everything.
