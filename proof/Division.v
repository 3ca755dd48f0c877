(* Shares that are divided equally, by weight, or by demand satisfy two assumptions of
   Statement.v, [fit] and [taking] (docs/protocol.md, section 4: "A revision that gives
   takes from nobody"). An announced end is one way in which n falls. How the code ranks
   instances, and how it computes demands, is not modelled. *)
From Quotient Require Import Sum.
From Coq Require Import Lia.
Open Scope nat_scope.

(* Of a total T, divided equally among n, the part of the one with rank k, from 0. *)
Definition part (T n k : nat) : nat := T / n + (if k <? T mod n then 1 else 0).

(* The parts sum to the total. *)
Lemma first_ranks m n : sum (fun k => if k <? m then 1 else 0) (seq 0 n) = Nat.min m n.
Proof.
  unfold sum. induction n as [|n IH]; [symmetry; apply Nat.min_0_r|].
  rewrite seq_S, map_app, list_sum_app, IH. simpl. destruct (Nat.ltb_spec n m); lia.
Qed.

Theorem parts_fit T n : n <> 0 -> sum (part T n) (seq 0 n) = T.
Proof.
  intros n0. unfold part. rewrite sum_add, first_ranks.
  assert (forall q m, sum (fun _ => q) (seq 0 m) = q * m) as ->.
  { intros q m. unfold sum. induction m as [|m IH]; [simpl; lia|].
    rewrite seq_S, map_app, list_sum_app, IH. simpl. lia. }
  pose proof (Nat.mod_upper_bound T n n0). pose proof (Nat.div_mod T n n0). lia.
Qed.

(* Equally: if T grows or n falls, and the rank does not rise, the part does not fall. *)
Theorem equal_part_grows T T' n n' k k' : T <= T' -> n' <= n -> n' <> 0 -> k' <= k ->
  part T n k <= part T' n' k'.
Proof.
  intros le fewer some rank. unfold part.
  assert (T / n <= T' / n') as H.
  { transitivity (T / n'); [apply Nat.div_le_compat_l; lia|apply Nat.div_le_mono; lia]. }
  destruct (Nat.ltb_spec k (T mod n)), (Nat.ltb_spec k' (T' mod n')); try lia.
  enough (T / n <> T' / n') by lia. intros same.
  pose proof (Nat.div_mod T n ltac:(lia)). pose proof (Nat.div_mod T' n' some). nia.
Qed.

(* By weight: an instance has as many ranks as its weight. *)
Theorem weighted_part_grows T T' n n' ks ks' : T <= T' -> n' <= n -> n' <> 0 ->
  Forall2 (fun k k' => k' <= k) ks ks' -> sum (part T n) ks <= sum (part T' n') ks'.
Proof.
  intros T0 n0 some ranks. unfold sum. induction ranks as [|k k' ks ks' rank _ IH]; simpl; [lia|].
  pose proof (equal_part_grows T T' n n' k k'). lia.
Qed.

(* By demand: what an instance asks beyond the base, at most `most`, and an equal part
   of the rest. *)
Definition claim (ask base most : nat) : nat := Nat.min (ask - base) most.

Theorem demand_part_grows ask base base' most most' rest rest' n k : n <> 0 ->
  base <= base' -> most <= most' -> rest + n * (base' - base) <= rest' ->
  claim ask base most + part rest n k <= claim ask base' most' + part rest' n k.
Proof.
  intros n0 B M grown.
  assert (part rest n k + (base' - base) <= part rest' n k).
  { eapply Nat.le_trans; [|apply (equal_part_grows _ _ n n k k grown); lia].
    unfold part. rewrite (Nat.mul_comm n), Nat.div_add, Nat.mod_add by assumption. lia. }
  unfold claim. lia.
Qed.
