(* Keys (docs/proof/protocol.md, section 15). A key's share is any function of the view, the
   incarnation, the key and the window that satisfies [fit] and [taking] for each key. The
   views, clocks, proofs and lookbacks are the provider's, so they are the same for all keys.
   What is proved of a world then holds for each key, with loans too. *)
From Quotient Require Import Statement Sum Lending Division.
From Quotient Require Import Views.
From Coq Require Import Lia.
Open Scope nat_scope.

(* A key's part of the provider's world: its shares, totals and permits. *)
Record keyed := Keyed {
  key_share : view -> incarnation -> window -> nat;
  key_total : view -> window -> nat;
  key_gives : view -> window -> bool;
  key_permits : list permit
}.

(* The world of one key. *)
Definition of_key (x : world) (k : keyed) : world :=
  World (settle x) (freshness x) (clock_error x) (drift x) (guard x) (width x)
    (commit x) (key_share k) (key_total k) (key_gives k) (ends x)
    (corrected x) (mono x) (wall x) (newest x) (applied x) (read x) (key_permits k).

(* What the provider's world must satisfy, beyond its own, for a key. *)
Record key_assumed (x : world) (k : keyed) : Prop := {
  key_fit : forall u W l, NoDup l -> sum (fun i => key_share k u i W) l <= key_total k u W;
  key_taking : forall v W i, key_gives k v W = true ->
    key_share k v i W <= key_share k (v + 1) i W \/
    exists U, ends x (v + 1) i = Some U /\ (U <= start x W)%Q;
  key_bound_itself : forall v i U, ends x v i = Some U ->
    exists s, (corrected x i s < U)%Q /\
      forall p, In p (key_permits k) -> who p = i -> (s < at_ p)%Q -> (start x (win p) < U)%Q
}.

Lemma key_world_assumed x k : assumed x -> key_assumed x k -> assumed (of_key x k).
Proof.
  intros [? ? ? ? ? ? ? ? ? ? ? ?] [? ? ?]. constructor; cbn; assumption.
Qed.

(* In no window is more issued for a key than the largest of its limits. *)
Theorem key_never_over x k : assumed x -> timing x -> key_assumed x k -> obeys (of_key x k) ->
  forall W T, (forall v, key_total k v W <= T) -> issued (of_key x k) W <= T.
Proof.
  intros a t ka o W T. exact (never_over _ (key_world_assumed x k a ka) t o W T).
Qed.

(* If the next revision does not give for the key, at most its limit by the view of B. *)
Theorem key_settles x k : assumed x -> key_assumed x k -> obeys (of_key x k) ->
  forall W B u, (B_minus x W <= B)%Q -> (B <= B_plus x W)%Q -> newest_at x u B ->
    key_gives k u W = false -> issued (of_key x k) W <= key_total k u W.
Proof.
  intros a ka o W B u. exact (settle_holds _ (key_world_assumed x k a ka) o W B u).
Qed.

(* A lending world of one key: the views are the provider's; permits, numbers told and numbers
   heard are the key's own. *)
Record key_lending := KeyLending {
  key_handed : list permit;
  key_tells : incarnation -> incarnation -> window -> nat -> Q -> nat -> Prop;
  key_heard : incarnation -> incarnation -> window -> nat -> Q -> nat
}.

Definition lent_of_key (x : world) (k : keyed) (l : key_lending) : lending :=
  Lending (of_key x k) (key_handed l) (key_tells l) (key_heard l).

(* With loans by key too, no window has more of it than the largest of its limits. *)
Theorem key_lending_never_over x k l : assumed x -> timing x -> key_assumed x k ->
  let y := lent_of_key x k l in charged y -> as_told y -> spends_as_heard y ->
  forall W T, (forall v, (key_total k v W <= T)%nat) -> (used y W <= T)%nat.
Proof.
  intros a t ka y ch told o W T small.
  exact (lending_never_over y (key_world_assumed x k a ka) t ch told o W T small).
Qed.

(* With owners the share of an instance is computed from v of all that take part (section 1), each
   with its number in the order of IDs. Extract.v makes a program of [owner_share]. *)
Definition owner_share (T m : nat) (all : list (nat * Z)) (i : nat * Z) : nat :=
  owner_part T m (length all) (before_count all i).

(* The shares of all that take part are at most the limit. *)
Theorem owner_shares_fit T m all : m <> 0 -> NoDup (map fst all) ->
  sum (owner_share T m all) all <= T.
Proof.
  intros m0 nd. destruct all as [|first_ rest]; [apply Nat.le_0_l|]. set (all := first_ :: rest) in *.
  assert (length all <> 0) as n0 by (simpl; lia).
  rewrite <- (owner_parts_fit T m (length all) m0 n0) at 2.
  unfold sum at 1. unfold owner_share. rewrite <- (map_map (before_count all) (owner_part T m (length all))).
  apply sum_incl; [apply before_counts_differ, nd|].
  intros k J. apply in_map_iff in J as (a & <- & J). apply in_seq. split; [lia|]. exact (before_count_below all a J).
Qed.
