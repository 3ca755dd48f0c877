(* Every claim of Statement.v, and what it rests on. proof/check reads what this prints. *)
From Quotient Require Import Statement Sum Division Views Example Lending LendingExample First FirstExample Hold HoldLending Keys Judge Changes ChangesExample KeyBudget Marks SameId Shapes Arrivals Debts Generations AnyPhase.

Check timing_leaves_an_instant : claim_timing.
Check sum_holds : claim_sum.
Check settle_holds : claim_settle.
Check never_over : claim_never_over.
Check true_windows : claim_true_windows.
Check lending_settles : claim_lending_settles.
Check lending_never_over : claim_lending_never_over.
Check issuing_by_distance : claim_by_distance.
Check first_never_over : claim_first_never_over.
Check hold_all : claim_hold_all.
Check hold_some : claim_hold_some.
Check hold_lending_all : claim_hold_lending_all.
Check hold_lending_some : claim_hold_lending_some.
Check sliding_never_over : claim_sliding_never_over.
Check hold_true_windows : claim_hold_true_windows.

(* All of them, and the examples, in one term: an axiom behind any would be printed. *)
Definition everything := (timing_leaves_an_instant, sum_holds, settle_holds, never_over,
  true_windows, promise, lending_settles, lending_never_over, leaves_spends, counts_more_told,
  issuing_by_distance, opens_late, first_never_over, hold_all, hold_some, hold_true_windows, hold_lending_all, hold_lending_some,
  (key_never_over, key_settles, key_lending_never_over, owner_shares_fit),
  (parts_fit, equal_part_grows, owner_parts_fit, owner_part_grows),
  (shares_fit, giving_takes_nothing, computed_fits, computed_takes, bound_is_held, timely_is_timing, min_settle_is_timely, takes_nothing_is_taking, window_bound_holds),
  (changes_never_over, changed_true_windows, length_holds, divisions_never_over, lowered_well, lowered_obeys),
  (key_budget_fits, key_budget_never_over, unknown_counted_it_breaks, returned_first_it_breaks, refusal_believed_it_breaks, total_alone_it_breaks),
  (marked_never_over, set_again_it_breaks),
  (one_view_binds, sliding_never_over, bucket_never_over, roll_adds_nothing, buckets_never_over, bucket_arrivals_never_over),
  (arrivals_never_over, arrivals_of_three, debts_never_over, debts_within_limits, unsettled_it_breaks,
    debts_paid_by_loans, payment_not_charged_it_breaks),
  (generations_never_over, any_m_in_a_row, meets, any_phase_never_over, in_flight_never_over, places_are_back, example_run,
    current_alone_it_breaks, later_uncounted_it_breaks, moved_unchecked_it_breaks, m_labels_it_breaks),
  (unnoticed_only, same_id_is_noticed, unnoticed_it_breaks, same_id_over_by),
  (example_assumed, example_timing, example_obeys, example_issued, without_lookback_it_breaks),
  (lent_on_charged, hear_as_told, lent_on_spends, lent_on_used, without_charge_it_breaks, not_as_told_it_breaks,
  overspent_it_breaks),
  (registers_ok, issuing_ok, obeys_ok, early, both_are_issued)).
Print Assumptions everything.
