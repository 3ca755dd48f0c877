(* Long limits in a store that is restored from a backup under another cluster ID, where the
   backup has a total of the window (docs/protocol.md, section 14, rule 3). In the window no more
   is issued than the largest limit until the restore, whatever is in the backup: a read of the
   restored store finds any holding, at any revision.

   The checks of internal/escrow are steps here:

   1. Found.Withheld: nothing is taken where the total is of another cluster than the one that
      answers, or is withheld ([hands_out], in [r_send]).
   2. Account.Read, another cluster: whoever reads the restored store first counts what it finds
      only if that hands out; otherwise it keeps to Account.May ([looks]).
   3. Account.Read, less than it knew: a holding that this process has not sent does not count
      ([looks_again]).

   Whoever has not looked yet goes on by what it knows, and its transactions may be committed by
   the restored store ([r_late]). Not covered: an operator's word (Total.Corrected), and what goes
   unnoticed: a store that is restored under its old ID (SameIdHoldings.v), or without a total. *)
From Quotient Require Import Escrow.
From Coq Require Import Arith List Lia Bool.
Import ListNotations.

(* Of a total: whether the new cluster has written it, and whether it is withheld. *)
Record mark := Mark { by_new : bool; withheld : bool }.
Definition hands_out (m : mark) : bool := by_new m && negb (withheld m).

Definition keeps (p : process) (at_ : nat) : process := Process (may p) at_ [] (used p).
Definition looks (p : process) (m : mark) (found at_ : nat) : process :=
  if hands_out m then Process found at_ [] (used p) else keeps p at_.
Definition looks_again (p : process) (found at_ : nat) : process :=
  if existsb (Nat.eqb found) (unknown p) then Process found at_ [] (used p) else keeps p at_.

Record restored := Restored {
  old : state; (* the store of before, and those that have not looked since *)
  total : mark; (* in the restored store *)
  now : nat -> option process; (* those that have looked *)
  sent_now : list mark; (* the totals of transactions on their way *)
  answers : list mark (* the totals that reads have found *)
}.

Inductive step_restored : restored -> restored -> Prop :=
(* Whoever has not looked goes on; the store of before commits nothing more. *)
| r_old o o' m n s a : step o o' -> db o' = db o -> (forall i, n i <> None -> procs o' i = procs o i) ->
    step_restored (Restored o m n s a) (Restored o' m n s a)
(* What was sent by what the old cluster had is committed. *)
| r_late o m n s a t w : In t (flying o) -> step_restored (Restored o m n s a) (Restored o (Mark false w) n s a)
| r_read o m n s a : step_restored (Restored o m n s a) (Restored o m n s (m :: a))
| r_look o m n s a i f found at_ : n i = None -> In f a ->
    step_restored (Restored o m n s a) (Restored o m (set n i (Some (looks (procs o i) f found at_))) s a)
| r_look_again o m n s a i p found at_ : n i = Some p ->
    step_restored (Restored o m n s a) (Restored o m (set n i (Some (looks_again p found at_))) s a)
(* It hears that what it has sent is not committed. *)
| r_refused o m n s a i p : n i = Some p ->
    step_restored (Restored o m n s a) (Restored o m (set n i (Some (forgets p))) s a)
(* Where nothing is handed out, a process sends what it may issue, and withholds the window. *)
| r_send o m n s a i p f v : n i = Some p -> In f a -> hands_out f = true \/ v = may p ->
    step_restored (Restored o m n s a)
      (Restored o m (set n i (Some (sends p v))) (Mark true (negb (hands_out f)) :: s) a)
| r_commit o m n s a t : In t s -> step_restored (Restored o m n s a) (Restored o t n s a)
| r_issue o m n s a i p : n i = Some p -> used p < may p ->
    step_restored (Restored o m n s a)
      (Restored o m (set n i (Some (Process (taken p) (own p) (unknown p) (used p + 1)))) s a).

(* From a store that was reached, restored with a total of before. *)
Inductive reached_restored (s0 : state) : restored -> Prop :=
| rr_first w : reached_restored s0 (Restored s0 (Mark false w) (fun _ => None) [] [])
| rr_step r r' : reached_restored s0 r -> step_restored r r' -> reached_restored s0 r'.

Definition used_by (r : restored) (i : nat) : nat :=
  match now r i with Some p => used p | None => used (procs (old r) i) end.

Record sound_restored (s0 : state) (top : nat -> nat) (r : restored) : Prop := {
  still : sound 0 top nobody (old r) /\ db (old r) = db s0;
  nothing_out : hands_out (total r) = false /\ (forall m, In m (sent_now r) -> hands_out m = false) /\
    (forall m, In m (answers r) -> hands_out m = false);
  kept : forall i p, now r i = Some p ->
    used p <= taken p /\ taken p <= top i /\ forall v, In v (unknown p) -> v = taken p
}.

Lemma may_same p : (forall v, In v (unknown p) -> v = taken p) -> may p = taken p.
Proof.
  unfold may. induction (unknown p) as [|v l IH]; intros all; simpl; [reflexivity|].
  rewrite IH by (intros; apply all; right; assumption). rewrite (all v (or_introl eq_refl)). apply Nat.min_id.
Qed.

Lemma restored_sound s0 top r : sound 0 top nobody s0 -> reached_restored s0 r -> sound_restored s0 top r.
Proof.
  intros S0. induction 1 as [w|r r' _ [(S & same) (no & nos & noa) k] st].
  - constructor; simpl; [auto|repeat split; auto; intros m []|discriminate].
  - destruct st as [o o' m n s a st same' stay|o m n s a t w I|o m n s a|o m n s a i f found at_ N I|o m n s a i p found at_ N|o m n s a i p N|
      o m n s a i p f v N I how|o m n s a t I|o m n s a i p N L]; simpl in *.
    + constructor; simpl; [|auto|exact k]. split; [|congruence].
      destruct (step_sound _ _ _ _ _ S st (nobody_left_alone o o')) as (top' & S' & E). rewrite <- (E same'). exact S'.
    + constructor; simpl; auto.
    + constructor; simpl; auto. repeat split; auto. intros f [<- | J]; auto.
    + constructor; simpl; auto. intros j p. destruct (Nat.eq_dec j i) as [-> | D].
      * rewrite set_same. intros [= <-]. unfold looks. rewrite (noa f I). simpl.
        split; [apply (within _ _ _ _ S)|]. split; [apply (topped _ _ _ _ S)|]. intros v [].
      * rewrite set_other by exact D. apply k.
    + constructor; simpl; auto. intros j q. destruct (Nat.eq_dec j i) as [-> | D]; [|rewrite set_other by exact D; apply k].
      rewrite set_same. intros [= <-]. destruct (k i p N) as (u & h & all). unfold looks_again.
      destruct (existsb (Nat.eqb found) (unknown p)) eqn:E; simpl.
      * apply existsb_exists in E as (v & J & E). apply Nat.eqb_eq in E as <-. rewrite (all _ J).
        split; [exact u|]. split; [exact h|]. intros v [].
      * rewrite (may_same p all). split; [exact u|]. split; [exact h|]. intros v [].
    + constructor; simpl; auto. intros j q. destruct (Nat.eq_dec j i) as [-> | D]; [|rewrite set_other by exact D; apply k].
      rewrite set_same. intros [= <-]. destruct (k i p N) as (u & h & all). simpl. split; [exact u|]. split; [exact h|].
      intros v J. apply all. destruct (unknown p); [destruct J|right; exact J].
    + assert (hands_out f = false) as nf by (apply noa; exact I).
      constructor; simpl; [auto| |].
      * split; [exact no|]. split; [|exact noa]. intros m' [<- | J]; [rewrite nf; reflexivity|auto].
      * intros j q. destruct (Nat.eq_dec j i) as [-> | D]; [|rewrite set_other by exact D; apply k].
        rewrite set_same. intros [= <-]. destruct (k i p N) as (u & h & all). simpl. split; [exact u|]. split; [exact h|].
        intros w [<- | J]; [|apply all; exact J]. destruct how as [H | ->]; [congruence|apply may_same, all].
    + constructor; simpl; auto.
    + constructor; simpl; auto. intros j q. destruct (Nat.eq_dec j i) as [-> | D]; [|rewrite set_other by exact D; apply k].
      rewrite set_same. intros [= <-]. destruct (k i p N) as (u & h & all). simpl. rewrite (may_same p all) in L.
      split; [lia|]. split; [exact h|exact all].
Qed.

(* All permits that are issued in the window, before and after the restore, are at most the
   largest limit until then. *)
Theorem restored_never_over l s0 r ids M : reached l s0 -> reached_restored s0 r -> NoDup ids ->
  (forall q, q <= policy s0 -> l q <= M) -> list_sum (map (used_by r) ids) <= M.
Proof.
  intros R0 R nd all. apply reached_sound in R0 as ((top & S0) & <-).
  pose proof (restored_sound s0 top r S0 R) as [(S & _) _ k].
  pose proof (below _ _ _ _ S0 M all). pose proof (fits _ _ _ _ S0 ids nd).
  enough (list_sum (map (used_by r) ids) <= list_sum (map top ids)) by lia.
  clear nd H H0. induction ids as [|i ids IH]; simpl; [lia|]. enough (used_by r i <= top i) by lia.
  unfold used_by. destruct (now r i) as [p|] eqn:N; [destruct (k i p N) as (? & ? & _); lia|].
  pose proof (within _ _ _ _ S i). destruct (topped _ _ _ _ S i). lia.
Qed.

(* Check 2 is needed: whoever counts what it finds in a window that is withheld is over. So was
   internal/escrow: process 0 reads a total of 5, of a limit of 5; process 1 takes and issues all;
   the store is restored, and commits what process 0 has sent. Another withholds the window. Then
   process 0 counts that holding. *)
Definition counts_anyway (p : process) (found at_ : nat) : process := Process found at_ [] (used p).
Theorem without_check_it_breaks : exists p found,
  In found (unknown p) /\ may p = 0 /\ may (looks p (Mark true true) found 1) = 0 /\ may (counts_anyway p found 1) = 5.
Proof. exists (Process 0 0 [5] 0), 5. repeat split. left. reflexivity. Qed.
