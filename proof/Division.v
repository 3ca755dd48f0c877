(* Shares that are divided equally, among all or among owners, satisfy two assumptions of
   Statement.v, [fit] and [taking] (docs/proof/protocol.md, section 4: "A revision that gives takes from
   nobody"). An announced end is one way in which n falls. How the code ranks instances is
   not modelled. *)
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

(* By owners: the first m of n in the order of ranks divide the total equally, or all if there
   are fewer. The others have none. *)
Definition owner_part (T m n k : nat) : nat :=
  if k <? Nat.min m n then part T (Nat.min m n) k else 0.

(* Beyond the owners there is nothing to add. *)
Lemma owner_parts_to T m n l : Nat.min m n <= l ->
  sum (owner_part T m n) (seq 0 l) = sum (owner_part T m n) (seq 0 (Nat.min m n)).
Proof.
  unfold sum. induction l as [|l IH]; intros H.
  - replace (Nat.min m n) with 0 by lia. reflexivity.
  - destruct (Nat.eq_dec (Nat.min m n) (S l)) as [->|ne]; [reflexivity|].
    rewrite seq_S, map_app, list_sum_app, IH by lia. simpl. unfold owner_part at 2.
    destruct (Nat.ltb_spec l (Nat.min m n)); lia.
Qed.

Theorem owner_parts_fit T m n : m <> 0 -> n <> 0 -> sum (owner_part T m n) (seq 0 n) = T.
Proof.
  intros m0 n0. rewrite owner_parts_to by lia.
  transitivity (sum (part T (Nat.min m n)) (seq 0 (Nat.min m n))); [|apply parts_fit; lia].
  unfold sum. f_equal. apply map_ext_in.
  intros k H. apply in_seq in H. unfold owner_part. destruct (Nat.ltb_spec k (Nat.min m n)); [reflexivity|lia].
Qed.

(* If T grows or n falls, and the rank does not rise, the part does not fall. Ranks are below
   the number of instances. *)
Theorem owner_part_grows T T' m n n' k k' : T <= T' -> n' <= n -> k' <= k -> k' < n' ->
  owner_part T m n k <= owner_part T' m n' k'.
Proof.
  intros more fewer rank in_. unfold owner_part.
  destruct (Nat.ltb_spec k (Nat.min m n)); [|lia].
  destruct (Nat.ltb_spec k' (Nat.min m n')); [|lia].
  apply equal_part_grows; lia.
Qed.
