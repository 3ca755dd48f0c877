(* A store that is restored from a backup under its old cluster ID (docs/proof/protocol.md, sections 11 and
   14): what an instance notices of it, and what it may cost where it notices nothing. *)
From Quotient Require Import KeyBudget.
From Coq Require Import Arith List Lia Bool.
Import ListNotations.

(* 1. VIEWS *)

(* A commit creates the key of an incarnation, or it is another. The revisions of a line are numbered
   from 1. *)
Inductive commit := creates (i : nat) | other (n : nat).
Record restore := Restore {
  before : nat -> commit; (* the old line *)
  after : nat -> commit; (* the line of the restored store *)
  backup : nat; (* the last revision that both have *)
  self : nat; (* an incarnation *)
  witness : nat; (* the revision that created its newest key *)
  known : nat (* the newest revision of the old line that it knows *)
}.

(* ASSUMED. *)
Record assumed_of (x : restore) : Prop := {
  shared : forall r, r <= backup x -> before x r = after x r;
  (* The key's name has a random part: no commit that only the new line has creates it. *)
  fresh_names : forall r, backup x < r -> after x r <> creates (self x)
}.

(* Checks 2 and 3 of section 11, of an answer of the restored store at revision R: R is not below
   what is known, and the store has the witness as it was created. *)
Definition passes (x : restore) (R : nat) : Prop :=
  known x <= R /\ witness x <= R /\ after x (witness x) = creates (self x).

(* An answer that passes, though the instance knows commits that the restore took back: only if the
   backup has the witness, and the store has passed what the instance knows. *)
Theorem unnoticed_only x R : assumed_of x -> passes x R -> backup x < known x ->
  witness x <= backup x /\ known x <= R.
Proof.
  intros a (k & _ & shown) _. split; [|exact k].
  apply Nat.nlt_ge. intros late. apply (fresh_names x a _ late shown).
Qed.

(* So the views that an instance knows are states of the new line too, if its first read finds the
   store below what it knows, or the backup is older than its witness. *)
Theorem same_id_is_noticed x R : assumed_of x ->
  (backup x < known x -> R < known x \/ backup x < witness x) ->
  passes x R -> forall r, r <= known x -> before x r = after x r.
Proof.
  intros a first ok r le. apply (shared x a).
  destruct (Nat.le_gt_cases (known x) (backup x)) as [H | H]; [lia|].
  destruct (unnoticed_only x R a ok H). destruct (first H); lia.
Qed.

(* That is needed: instance 7 has registered at 1, and knows revision 3. The backup has revision 1.
   The restored store is at 3 again when the instance reads. *)
Theorem unnoticed_it_breaks : exists x R, assumed_of x /\ passes x R /\
  before x (known x) <> after x (known x).
Proof.
  set (line n r := if Nat.eqb r 1 then creates 7 else other (if r <=? 1 then 0 else n)).
  exists (Restore (line 1) (line 2) 1 7 1 3), 3. split; [constructor; simpl|split].
  - intros r le. unfold line. destruct (Nat.eqb_spec r 1); [reflexivity|].
    assert (r <=? 1 = true) as -> by (apply Nat.leb_le; lia). reflexivity.
  - intros r late. unfold line. destruct (Nat.eqb_spec r 1); [lia|discriminate].
  - repeat split; simpl; lia.
  - discriminate.
Qed.

(* 2. LONG LIMITS, where nothing is noticed *)

(* The state, and how many permits the restores have forgotten. A restore sets the total to one that
   a store had. No copy reaches the restored store of what was committed or refused before. *)
Inductive reached_again (l : nat -> nat) : state -> nat -> Prop :=
| again_first s : reached l s -> reached_again l s 0
| again_step s s' lost : reached_again l s lost -> step s s' -> reached_again l s' lost
| again_restored o v m d f z a k lost s0 lost0 : reached_again l (State o v m d f z a l k) lost ->
    reached_again l s0 lost0 -> policy s0 <= k ->
    reached_again l (State (out s0) (version s0) m d f [] a l k) (lost + (o - out s0)).

(* Each restore adds at most what was taken since its backup. *)
Theorem same_id_over_by l s lost ids M : reached_again l s lost -> NoDup ids ->
  (forall q, q <= policy s -> l q <= M) -> held s ids <= M + lost.
Proof.
  intros H nd all. enough (sound lost s /\ limits s = l) as (S & <-).
  { pose proof (fits lost s S ids nd). pose proof (below lost s S M all). lia. }
  clear nd all. induction H as [s H|s s' lost H [IH E] st|o v m d f z a k lost s0 lost0 H [[fi re se _ _ be] E] H0 [[_ _ _ _ _ be0] E0] le].
  - apply reached_sound, H.
  - split; [eapply step_sound; eassumption|]. destruct st; exact E.
  - split; [|exact E]. constructor; simpl in *; auto.
    + intros some nd. specialize (fi some nd). unfold held, on_the_way in *. simpl in *. lia.
    + intros b t [].
    + intros t [].
    + intros M' all. apply be0. intros q Q. rewrite E0. apply all. lia.
Qed.
