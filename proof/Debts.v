(* Costs that are known late (docs/proof/guarantees.md). A call can cost more than its permits: the
   difference is a debt of its instance from when it is settled. The instance pays with permits, which
   count in the window in which they could have been issued. If permits and payments of each window
   keep within its limit, the calls of a span of whole windows cost at most the limits, the debts at
   its end, and what calls have cost beyond their permits and is not settled by then.

   A window is its index, by the clock of the instance. The calls and payments are those of all
   instances. Debts of processes that have ended count: nobody pays them. *)
From Quotient Require Import Sum Lending.
From Coq Require Import Lia.
Open Scope Z_scope.

Record call := Call {
  in_ : window; (* in which its permits were issued *)
  got : nat; (* permits *)
  costs : nat;
  settled : option window; (* in which its cost was stated *)
  back : bool (* permits that it did not need were given back: within their window *)
}.
Record payment := Payment { paid_in : window; pays : nat }.

Definition kept (c : call) : nat := if back c then Nat.min (got c) (costs c) else got c.
Definition excess (c : call) : nat := costs c - got c.
Definition settled_by (W : window) (c : call) : bool := match settled c with Some s => s <=? W | None => false end.
Definition within (lo hi W : window) : bool := (lo <=? W) && (W <=? hi).

Definition of_calls (f : call -> bool) (g : call -> nat) (l : list call) : nat := sum (fun c => if f c then g c else 0%nat) l.
Definition of_payments (f : payment -> bool) (l : list payment) : nat := sum (fun p => if f p then pays p else 0%nat) l.

Section Debts.
  Variables (calls : list call) (payments : list payment).

  Definition owed (W : window) : nat := of_calls (settled_by W) excess calls.
  Definition paid (W : window) : nat := of_payments (fun p => paid_in p <=? W) payments.
  (* The debts of all at the end of W. *)
  Definition debts (W : window) : nat := (owed W - paid W)%nat.
  (* What counts in W: permits issued and not given back, and debts paid. *)
  Definition booked (W : window) : nat :=
    (of_calls (fun c => Z.eqb (in_ c) W) kept calls + of_payments (fun p => Z.eqb (paid_in p) W) payments)%nat.
  Fixpoint over_windows (f : window -> nat) (lo : window) (n : nat) : nat :=
    match n with O => 0%nat | Datatypes.S n => (f lo + over_windows f (lo + 1) n)%nat end.

  (* A call is settled once it is issued, and a debt is paid once it is owed. *)
  Hypothesis settled_later : forall c s, In c calls -> settled c = Some s -> in_ c <= s.
  Hypothesis paid_later : forall W, (paid W <= owed W)%nat.

  Definition cost (lo hi : window) : nat := of_calls (fun c => within lo hi (in_ c)) costs calls.
  Definition unsettled (lo hi : window) : nat :=
    of_calls (fun c => within lo hi (in_ c) && negb (settled_by hi c)) excess calls.

  Lemma over_add f g lo n : over_windows (fun W => f W + g W)%nat lo n = (over_windows f lo n + over_windows g lo n)%nat.
  Proof. revert lo. induction n as [|n IH]; intros lo; simpl; [reflexivity|]. rewrite IH. lia. Qed.

  Lemma over_none f lo n : (forall W, lo <= W -> f W = 0%nat) -> over_windows f lo n = 0%nat.
  Proof. revert lo. induction n as [|n IH]; intros lo H; simpl; [reflexivity|]. rewrite H, IH by (intros; try apply H; lia). reflexivity. Qed.

  (* Something that counts in one window counts once. *)
  Lemma over_one V k lo n : over_windows (fun W => if V =? W then k else 0%nat) lo n =
    if within lo (lo + Z.of_nat n - 1) V then k else 0%nat.
  Proof.
    unfold within. revert lo. induction n as [|n IH]; intros lo; cbn [over_windows].
    - destruct (Z.leb_spec lo V), (Z.leb_spec V (lo + Z.of_nat 0 - 1)); simpl; lia.
    - rewrite IH. destruct (Z.eqb_spec V lo), (Z.leb_spec lo V), (Z.leb_spec (lo + 1) V),
        (Z.leb_spec V (lo + 1 + Z.of_nat n - 1)), (Z.leb_spec V (lo + Z.of_nat (Datatypes.S n) - 1)); simpl; lia.
  Qed.

  Lemma over_sum {A} (l : list A) (at_w : A -> window) (g : A -> nat) lo n :
    over_windows (fun W => sum (fun c => if at_w c =? W then g c else 0%nat) l) lo n =
    sum (fun c => if within lo (lo + Z.of_nat n - 1) (at_w c) then g c else 0%nat) l.
  Proof.
    induction l as [|c l IH]; unfold sum in *; simpl; [apply over_none; reflexivity|].
    rewrite over_add, over_one, IH. reflexivity.
  Qed.

  Lemma over_le f g lo n : (forall W, within lo (lo + Z.of_nat n - 1) W = true -> (f W <= g W)%nat) ->
    (over_windows f lo n <= over_windows g lo n)%nat.
  Proof.
    unfold within. revert lo. induction n as [|n IH]; intros lo H; cbn [over_windows]; [lia|].
    apply Nat.add_le_mono; [apply H|apply IH; intros W R; apply H]; rewrite !andb_true_iff, !Z.leb_le in *; lia.
  Qed.

  (* A call costs at most its permits and its excess. What is settled of the span was not owed before
     it, and is paid in it or owed at its end. *)
  Theorem debts_never_over limit lo n : let hi := lo + Z.of_nat n - 1 in
    (forall W, within lo hi W = true -> (booked W <= limit W)%nat) ->
    (cost lo hi <= over_windows limit lo n + debts hi + unsettled lo hi)%nat.
  Proof.
    intros hi le. apply over_le in le. unfold booked, of_calls, of_payments in le.
    rewrite over_add, !over_sum in le. fold hi in le.
    assert (cost lo hi + owed (lo - 1) <= sum (fun c => if within lo hi (in_ c) then kept c else 0%nat) calls + owed hi + unsettled lo hi)%nat as C.
    { unfold cost, owed, unsettled, of_calls. rewrite <- !sum_add. apply sum_le. intros c I.
      pose proof (settled_later c) as later. unfold within, settled_by, kept, excess.
      destruct (Z.leb_spec lo (in_ c)), (Z.leb_spec (in_ c) hi), (settled c) as [s|]; simpl;
        try (specialize (later s I eq_refl); destruct (Z.leb_spec s (lo - 1)), (Z.leb_spec s hi); simpl);
        destruct (back c); lia. }
    assert (paid hi <= paid (lo - 1) + sum (fun p => if within lo hi (paid_in p) then pays p else 0%nat) payments)%nat as P.
    { unfold paid, of_payments. rewrite <- sum_add. apply sum_le. intros p _. unfold within.
      destruct (Z.leb_spec (paid_in p) hi), (Z.leb_spec (paid_in p) (lo - 1)), (Z.leb_spec lo (paid_in p)); simpl; lia. }
    pose proof (paid_later (lo - 1)). unfold debts. lia.
  Qed.
End Debts.

(* So with the rule: if what is booked are the permits of a world that obeys it. *)
Theorem debts_within_limits x calls payments T lo n : assumed x -> timing x -> obeys x ->
  (forall c s, In c calls -> settled c = Some s -> in_ c <= s) ->
  (forall W, (paid payments W <= owed calls W)%nat) ->
  (forall W, booked calls payments W = issued x W) ->
  (forall v W, (total x v W <= T)%nat) ->
  let hi := lo + Z.of_nat n - 1 in
  (cost calls lo hi <= n * T + debts calls payments hi + unsettled calls lo hi)%nat.
Proof.
  intros a ti o later paid_ same small hi.
  assert (n * T = over_windows (fun _ => T) lo n)%nat as -> by (generalize lo; induction n; intros; simpl; [|rewrite <- IHn]; lia).
  apply debts_never_over; [exact later|exact paid_|]. intros W _. rewrite same. apply never_over; auto.
Qed.

(* An excess that nobody owes would break it: a call of one permit that costs 5 and is not settled. *)
Theorem unsettled_it_breaks : exists calls, booked calls [] 0 = 1%nat /\ debts calls [] 0 = 0%nat /\
  cost calls 0 0 = 5%nat /\ unsettled calls 0 0 = 4%nat.
Proof. exists [Call 0 1 5 None false]. repeat split. Qed.

(* With loans: a payment is a permit used, the own or a borrowed one. *)
Theorem debts_paid_by_loans y calls payments T lo n : assumed (among y) -> timing (among y) ->
  charged y -> as_told y -> spends_as_heard y ->
  (forall c s, In c calls -> settled c = Some s -> in_ c <= s) ->
  (forall W, (paid payments W <= owed calls W)%nat) ->
  (* Used are the permits issued to calls, less those given back, and those that pay. *)
  (forall W, (booked calls payments W <= used y W)%nat) ->
  (forall v W, (total (among y) v W <= T)%nat) ->
  let hi := lo + Z.of_nat n - 1 in
  (cost calls lo hi <= n * T + debts calls payments hi + unsettled calls lo hi)%nat.
Proof.
  intros a ti ch told sp later paid_ same small hi.
  assert (n * T = over_windows (fun _ => T) lo n)%nat as -> by (generalize lo; induction n; intros; simpl; [|rewrite <- IHn]; lia).
  apply debts_never_over; [exact later|exact paid_|]. intros W _.
  eapply Nat.le_trans; [apply same|]. eapply lending_never_over; eauto.
Qed.

(* A payment that is not charged breaks it: of a limit of 1 a permit pays an old debt, and is issued
   too. 2 are booked of the window. *)
Theorem payment_not_charged_it_breaks : exists calls payments,
  booked calls payments 1 = 2%nat /\ owed calls 1 = 1%nat /\ paid payments 1 = 1%nat.
Proof. exists [Call 0 1 2 (Some 0) false; Call 1 1 1 (Some 1) false], [Payment 1 1]. repeat split. Qed.
