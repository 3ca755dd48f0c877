(* One total by generation: the rule for long limits whose window begins at any instant, and for calls in
   flight (docs/proof/protocol.md, section 14). Time is cut into generations. What is taken in one has its
   number as a label, and the store has a total for each label. In one transaction it takes of a label,
   or gives back, or both: what is moved to another label is given back and taken. If labels after g-M
   sum to at most the limit with it, a take of label g commits. So any M labels in a row never
   sum to more, whatever clocks say: no clock is in this file.

   Messages may be lost, late, or come again, as in KeyBudget.v. Here too a transaction is on the
   condition of the total's version, and what is given back leaves the purse before it is sent.

   AnyPhase.v draws the conclusions for the provider. Not covered: stores that are restored, an operator
   that lowers the total, changes of a generation's length, and labels that a store forgets while an
   instance may still count them. *)
From Quotient Require KeyBudget.
From Coq Require Import Arith ZArith List Lia Bool.
Import ListNotations.
Open Scope nat_scope.

Definition label := Z.
Bind Scope Z_scope with label.
Definition labels := label -> nat.
(* What n labels in a row have, from l on. *)
Fixpoint span (f : labels) (l : label) (n : nat) : nat :=
  match n with O => O | S n => f l + span f (l + 1)%Z n end.

Definition of_label (l : label) (n : nat) : labels := fun k => if Z.eqb k l then n else 0.
Definition more (f g : labels) : labels := fun l => f l + g l.
Definition less (f g : labels) : labels := fun l => f l - g l.
Definition within (f g : labels) : Prop := forall l, f l <= g l.

(* A transaction: of whom, the total and the version that it was computed from, what it gives back, and
   what it takes of which label. *)
Record transaction := Transaction {
  of : nat; seen : labels; seen_version : nat; back : labels; taken_of : label; takes : nat
}.
Definition brings (t : transaction) : labels := of_label (taken_of t) (takes t).
Definition out_after (t : transaction) : labels := more (less (seen t) (back t)) (brings t).

(* All labels after g-M: also those after g, which an instance takes whose clock is ahead. *)
Definition fits_after (M : nat) (limit : nat) (f : labels) (g : label) : Prop :=
  forall n, span f (g - Z.of_nat M + 1)%Z n <= limit.
(* What an instance may send. *)
Definition may_take (M limit : nat) (t : transaction) : Prop := takes t = 0 \/ fits_after M limit (out_after t) (taken_of t).
Definition may_give (may : labels) (t : transaction) : Prop := within (back t) may /\ within (back t) (seen t).
(* No copy of a transaction commits, nor has one committed, by what the store has. *)
Definition never_commits (t : transaction) (out : labels) (version : nat) : Prop :=
  version = seen_version t + 1 /\ exists l, out l <> out_after t l.

Record state := State {
  out : labels; (* the total in the store *)
  version : nat; (* the number of its writes *)
  may : nat -> labels; (* what an instance may still issue; or its idle slots *)
  issued : nat -> labels; (* what it has issued; or its slots with a call *)
  flying : list transaction; (* sent, neither committed nor known never to be *)
  copies : list (bool * transaction); (* the others that were sent, and whether they were committed *)
  answers : list (nat * labels); (* what a transaction brought, or does not give back: unheard *)
  limits : nat -> nat; (* by each revision of the policy *)
  policy : nat (* the policy's revision *)
}.
Notation set := KeyBudget.set.

Section Rule.
Variable M : nat. (* so many labels in a row count *)

Inductive step : state -> state -> Prop :=
(* An operator writes another policy. *)
| g_policy o v m d f z a l k : step (State o v m d f z a l k) (State o v m d f z a l (k + 1))
(* An instance lowers what it may issue by what it gives back, then sends. It takes by any total that it
   has read, of any label, and by a limit of any time. *)
| g_send o v m d f z a l k t q : q <= k -> may_take M (l q) t -> may_give (m (of t)) t ->
    step (State o v m d f z a l k) (State o v (set m (of t) (less (m (of t)) (back t))) d (t :: f) z a l k)
(* The store commits a transaction if total and version are those that were seen. *)
| g_commit o v m d f1 t f2 z a l k : (forall g, o g = seen t g) -> v = seen_version t ->
    step (State o v m d (f1 ++ t :: f2) z a l k)
      (State (out_after t) (v + 1) m d (f1 ++ f2) ((true, t) :: z) ((of t, brings t) :: a) l k)
(* So it does with a copy. *)
| g_copy o v m d f z b t a l k : In (b, t) z -> (forall g, o g = seen t g) -> v = seen_version t ->
    step (State o v m d f z a l k) (State (out_after t) (v + 1) m d f z ((of t, brings t) :: a) l k)
(* It refuses one of which no copy commits. *)
| g_refuse o v m d f1 t f2 z a l k : never_commits t o v ->
    step (State o v m d (f1 ++ t :: f2) z a l k)
      (State o v m d (f1 ++ f2) ((false, t) :: z) ((of t, back t) :: a) l k)
(* So it does with a copy of one that was committed. *)
| g_refuse_copy o v m d f z t a l k : In (true, t) z -> never_commits t o v ->
    step (State o v m d f z a l k) (State o v m d f z ((of t, back t) :: a) l k)
(* An instance hears that, once or never. *)
| g_hear o v m d f z a1 i n a2 l k :
    step (State o v m d f z (a1 ++ (i, n) :: a2) l k)
      (State o v (set m i (more (m i) n)) d f z (a1 ++ a2) l k)
(* It issues permits, or puts calls on slots. *)
| g_issue o v m d f z a l k i n : within n (m i) ->
    step (State o v m d f z a l k) (State o v (set m i (less (m i) n)) (set d i (more (d i) n)) f z a l k)
(* Permits come back that no call has used; or calls have ended, and their slots are idle. *)
| g_done o v m d f z a l k i n : within n (d i) ->
    step (State o v m d f z a l k) (State o v (set m i (more (m i) n)) (set d i (less (d i) n)) f z a l k)
(* It forgets what it may issue: it crashes, or a label has ended. Its calls are still under way. *)
| g_forget o v m d f z a l k i n :
    step (State o v m d f z a l k) (State o v (set m i (less (m i) n)) d f z a l k).

Inductive reached (l : nat -> nat) : state -> Prop :=
| g_first : reached l (State (fun _ => 0) 0 (fun _ _ => 0) (fun _ _ => 0) [] [] [] l 0)
| g_step s s' : reached l s -> step s s' -> reached l s'.

(* What the total has of a label, and no instance. *)
Definition gain (l : label) (a : nat * labels) : nat := snd a l.
Definition on_the_way (s : state) (l : label) : nat :=
  list_sum (map (fun t => back t l) (flying s)) + list_sum (map (gain l) (answers s)).
Definition held (s : state) (ids : list nat) (l : label) : nat :=
  list_sum (map (fun i => may s i l + issued s i l) ids).

Record sound (s : state) : Prop := {
  fits : forall l ids, NoDup ids -> held s ids l + on_the_way s l <= out s l;
  given_within : forall t, In t (flying s) -> within (back t) (seen t);
  sent_within : forall t, In t (flying s) -> exists q, q <= policy s /\ may_take M (limits s q) t;
  copies_before : forall b t, In (b, t) (copies s) -> seen_version t < version s;
  newest_copy : forall t, In (true, t) (copies s) -> seen_version t + 1 = version s -> forall l, out s l = out_after t l;
  in_a_row : forall T, (forall q, q <= policy s -> limits s q <= T) -> forall l, span (out s) l M <= T
}.

Lemma span_within f g l n : (forall k, (l <= k < l + Z.of_nat n)%Z -> f k <= g k) -> span f l n <= span g l n.
Proof.
  revert l. induction n as [|n IH]; intros l H; cbn [span]; [lia|].
  pose proof (H l ltac:(lia)). specialize (IH (l + 1)%Z ltac:(intros; apply H; lia)). lia.
Qed.
Lemma span_split f l m n : span f l (m + n) = span f l m + span f (l + Z.of_nat m) n.
Proof.
  revert l. induction m as [|m IH]; intros l; cbn [span Nat.add]; [f_equal; lia|].
  rewrite IH. replace (l + 1 + Z.of_nat m)%Z with (l + Z.of_nat (S m))%Z by lia. lia.
Qed.

(* Whatever is written: if other labels do not grow, and with g all after g-M are within T, then any M in
   a row are, if they were before. *)
Theorem any_m_in_a_row T before after g : (forall l, span before l M <= T) ->
  (forall l, l <> g -> after l <= before l) -> fits_after M T after g ->
  forall l, span after l M <= T.
Proof.
  intros ok others now l. destruct (Z.le_gt_cases (g - Z.of_nat M + 1) l) as [le | gt].
  - specialize (now (Z.to_nat (l - (g - Z.of_nat M + 1)) + M)). rewrite span_split in now.
    replace (g - Z.of_nat M + 1 + Z.of_nat (Z.to_nat (l - (g - Z.of_nat M + 1))))%Z with l in now by lia. lia.
  - eapply Nat.le_trans; [apply (span_within after before)|apply ok]. intros k ?. apply others. lia.
Qed.

Lemma after_others t l : l <> taken_of t -> out_after t l <= seen t l.
Proof.
  intros N. unfold out_after, more, less, brings, of_label. apply Z.eqb_neq in N. rewrite N. lia.
Qed.
Lemma nothing_taken t l : takes t = 0 -> out_after t l <= seen t l.
Proof. intros N. unfold out_after, more, less, brings, of_label. rewrite N. destruct (Z.eqb _ _); lia. Qed.

Lemma step_sound s s' : sound s -> step s s' -> sound s'.
Proof.
  intros [fi gi se cb nc ro] st.
  assert (forall l ids i (g : nat -> nat) e, NoDup ids ->
    (forall j, j <> i -> g j = may s j l + issued s j l) ->
    g i + e <= may s i l + issued s i l + on_the_way s l ->
    list_sum (map g ids) + e <= out s l) as one.
  { intros l ids i g e nd same le. unfold held in fi.
    pose proof (KeyBudget.held_changed (fun j => may s j l + issued s j l) g i ids nd same) as [yes no].
    destruct (in_dec Nat.eq_dec i ids) as [I | N].
    - specialize (yes I). specialize (fi l ids nd). simpl in *. lia.
    - rewrite (no N). specialize (fi l (i :: ids) (NoDup_cons i N nd)). simpl in *. lia. }
  destruct st as [o v m d f z a l k|o v m d f z a l k t q Q T G|o v m d f1 t f2 z a l k E V|
    o v m d f z b t a l k I E V|o v m d f1 t f2 z a l k N|o v m d f z t a l k I N|
    o v m d f z a1 i n a2 l k|o v m d f z a l k i n W|o v m d f z a l k i n W|o v m d f z a l k i n];
    unfold held, on_the_way in *; simpl in *.
  - (* An operator writes. *)
    constructor; unfold held, on_the_way; simpl; auto.
    + intros t I. destruct (se t I) as (q & Q & ok). exists q. split; [lia|exact ok].
    + intros T all. apply ro. intros q Q. apply all. lia.
  - (* An instance sends. *)
    destruct G as [mine there].
    constructor; unfold held, on_the_way; simpl; auto.
    + intros g ids nd. apply (one g ids (of t) (fun j => set m (of t) (less (m (of t)) (back t)) j g + d j g)); auto.
      * intros j N. rewrite KeyBudget.set_other by exact N. reflexivity.
      * rewrite KeyBudget.set_same. unfold less. specialize (mine g). lia.
    + intros u [<- | I]; auto.
    + intros u [<- | I]; [exists q; auto|auto].
  - (* The store commits. *)
    assert (forall u, In u (f1 ++ f2) -> In u (f1 ++ t :: f2)) as old by (intros u; apply KeyBudget.in_middle).
    pose proof (gi t (in_elt _ _ _)) as there.
    constructor; unfold held, on_the_way; simpl; auto.
    + intros g ids nd. specialize (fi g ids nd). rewrite KeyBudget.sum_middle in fi.
      specialize (there g). rewrite E in fi. unfold out_after, more, less. lia.
    + intros b u [[= <- <-] | I]; [lia|]. specialize (cb b u I). lia.
    + intros u [[= <-] | I] S; [reflexivity|]. specialize (cb _ _ I). lia.
    + intros T all. destruct (se t (in_elt _ _ _)) as (q & Q & [none | ok]).
      * intros g. eapply Nat.le_trans; [apply (span_within _ o)|apply ro, all].
        intros h _. rewrite E. apply nothing_taken, none.
      * apply (any_m_in_a_row T o _ (taken_of t)); [apply ro, all| |].
        -- intros h N. rewrite E. apply after_others, N.
        -- intros n. eapply Nat.le_trans; [apply ok|apply all, Q].
  - (* It commits no copy: the version is a later one. *)
    specialize (cb _ _ I). lia.
  - (* It refuses. *)
    assert (forall u, In u (f1 ++ f2) -> In u (f1 ++ t :: f2)) as old by (intros u; apply KeyBudget.in_middle).
    destruct N as [V _]. constructor; unfold held, on_the_way; simpl; auto.
    + intros g ids nd. specialize (fi g ids nd). rewrite KeyBudget.sum_middle in fi. lia.
    + intros b u [[= <- <-] | I]; [lia|eauto].
    + intros u [[= ] | I]; auto.
  - (* It refuses no copy of what it has committed so. *)
    destruct N as [V (g & D)]. exfalso. apply D. apply nc; auto.
  - (* An instance hears. *)
    constructor; unfold held, on_the_way; simpl; auto.
    intros g ids nd. specialize (fun i e => one g ids i e). rewrite KeyBudget.sum_middle in one. simpl in one.
    apply (one i (fun j => set m i (more (m i) n) j g + d j g)); auto.
    + intros j N. rewrite KeyBudget.set_other by exact N. reflexivity.
    + rewrite KeyBudget.set_same. unfold more. lia.
  - (* It issues. *)
    constructor; unfold held, on_the_way; simpl; auto.
    intros g ids nd. apply (one g ids i (fun j => set m i (less (m i) n) j g + set d i (more (d i) n) j g)); auto.
    + intros j N. rewrite !KeyBudget.set_other by exact N. reflexivity.
    + rewrite !KeyBudget.set_same. unfold less, more. specialize (W g). lia.
  - (* Permits come back. *)
    constructor; unfold held, on_the_way; simpl; auto.
    intros g ids nd. apply (one g ids i (fun j => set m i (more (m i) n) j g + set d i (less (d i) n) j g)); auto.
    + intros j N. rewrite !KeyBudget.set_other by exact N. reflexivity.
    + rewrite !KeyBudget.set_same. unfold less, more. specialize (W g). lia.
  - (* It forgets. *)
    constructor; unfold held, on_the_way; simpl; auto.
    intros g ids nd. apply (one g ids i (fun j => set m i (less (m i) n) j g + d j g)); auto.
    + intros j N. rewrite KeyBudget.set_other by exact N. reflexivity.
    + rewrite KeyBudget.set_same. unfold less. lia.
Qed.

Lemma reached_sound l s : reached l s -> sound s /\ limits s = l.
Proof.
  induction 1 as [|s s' H [IH E] st].
  - split; [|reflexivity].
    assert (forall g n, span (fun _ => 0) g n = 0) as none by (intros g n; revert g; induction n; intros; simpl; auto).
    constructor; unfold held, on_the_way; simpl; try tauto.
    + intros g ids _. induction ids; simpl; lia.
    + intros T _ g. rewrite none. lia.
  - split; [eapply step_sound; eassumption|]. destruct st; exact E.
Qed.

(* What all instances may issue and have issued of a label is at most its total, and the totals of any M
   labels in a row sum to at most the largest limit so far. *)
Theorem generations_never_over l s ids T : reached l s -> NoDup ids -> (forall q, q <= policy s -> l q <= T) ->
  (forall g, held s ids g <= out s g) /\ forall g, span (out s) g M <= T.
Proof.
  intros H nd all. apply reached_sound in H as (S & <-). split; [|apply (in_a_row s S T all)].
  intros g. pose proof (fits s S g ids nd). lia.
Qed.
End Rule.

(* Each part of the rule is needed. T is 1, and M is 2. *)

(* A take that counts the running generation alone is over in the next one. *)
Theorem current_alone_it_breaks : exists before after, (forall g, span before g 2 <= 1) /\
  (forall l, l <> 1%Z -> after l <= before l) /\ after 1%Z <= 1 /\ span after 0 2 = 2.
Proof.
  exists (of_label 0 1), (more (of_label 0 1) (of_label 1 1)). unfold of_label, more. split; [|split; [|split]].
  - intros g. simpl. destruct (Z.eqb_spec g 0), (Z.eqb_spec (g + 1) 0); lia.
  - intros l N. apply Z.eqb_neq in N. rewrite N. lia.
  - simpl. lia.
  - reflexivity.
Qed.

(* So is one that counts no label after its own: the other's clock is ahead. *)
Theorem later_uncounted_it_breaks : exists before after, (forall g, span before g 2 <= 1) /\
  (forall l, l <> 0%Z -> after l <= before l) /\ span after (0 - 1) 2 <= 1 /\ span after 0 2 = 2.
Proof.
  exists (of_label 1 1), (more (of_label 0 1) (of_label 1 1)). unfold of_label, more. split; [|split; [|split]].
  - intros g. simpl. destruct (Z.eqb_spec g 1), (Z.eqb_spec (g + 1) 1); lia.
  - intros l N. apply Z.eqb_neq in N. rewrite N. lia.
  - simpl. lia.
  - reflexivity.
Qed.

(* And one that moves what an ended label still has, without the condition of a take: what counts no more
   at a take of label 2 is moved from 0 to 1. *)
Theorem moved_unchecked_it_breaks : exists before, (forall g, span before g 2 <= 1) /\ before 0%Z = 1 /\
  span (more (less before (of_label 0 1)) (of_label 1 1)) 1 2 = 2.
Proof.
  exists (more (of_label 0 1) (of_label 2 1)). unfold of_label, more, less. split; [|split; reflexivity].
  intros g. simpl. destruct (Z.eqb_spec g 0), (Z.eqb_spec (g + 1) 0), (Z.eqb_spec g 2), (Z.eqb_spec (g + 1) 2); lia.
Qed.

(* A span of 2 generations meets 3, so 2 labels are too few for it. *)
Theorem m_labels_it_breaks : exists f, (forall g, span f g 2 <= 1) /\ span f 0 3 = 2.
Proof.
  exists (more (of_label 0 1) (of_label 2 1)). unfold of_label, more. split; [|reflexivity].
  intros g. simpl. destruct (Z.eqb_spec g 0), (Z.eqb_spec (g + 1) 0), (Z.eqb_spec g 2), (Z.eqb_spec (g + 1) 2); lia.
Qed.

(* There are such runs: instance 0 takes 1 of label 0, moves it to label 1, and issues it. *)
Definition example_take := Transaction 0 (fun _ => 0) 0 (fun _ => 0) 0 1.
Definition example_move := Transaction 0 (out_after example_take) 1 (of_label 0 1) 1 1.
Theorem example_run : exists s, reached 2 (fun _ => 1) s /\ issued s 0 1%Z = 1 /\ out s 0%Z = 0 /\ span (out s) 0 2 = 1.
Proof.
  eexists. split; [|split; [|split]].
  - eapply g_step; [eapply g_step; [eapply g_step; [eapply g_step; [eapply g_step; [eapply g_step; [eapply g_step;
      [apply g_first|]|]|]|]|]|]|].
    + apply (g_send _ _ _ _ _ _ _ _ _ _ example_take 0); [lia| |].
      * right. intros n. cbn. destruct n as [|[|[|n]]]; cbn; try lia.
        assert (forall k l, (0 < l)%Z -> span (out_after example_take) l k = 0) as none.
        { induction k as [|k IH]; intros l pos; simpl; [reflexivity|]. rewrite IH by lia.
          unfold out_after, more, less, brings, of_label. simpl. destruct (Z.eqb_spec l 0); lia. }
        rewrite none by lia. lia.
      * split; intros l; simpl; lia.
    + apply (g_commit _ _ _ _ _ [] example_take []); reflexivity.
    + apply (g_hear _ _ _ _ _ _ _ [] 0 (brings example_take) []).
    + apply (g_send _ _ _ _ _ _ _ _ _ _ example_move 0); [lia| |].
      * right. intros n. cbn. destruct n as [|[|[|n]]]; cbn; try lia.
        assert (forall k l, (1 < l)%Z -> span (out_after example_move) l k = 0) as none.
        { induction k as [|k IH]; intros l pos; simpl; [reflexivity|]. rewrite IH by lia.
          do 2 (unfold out_after, more, less, brings, of_label; simpl).
          destruct (Z.eqb_spec l 0), (Z.eqb_spec l 1); lia. }
        rewrite none by lia. lia.
      * split; intros l; simpl; do 2 (unfold out_after, KeyBudget.set, more, less, brings, of_label; simpl);
          destruct (Z.eqb_spec l 0); lia.
    + apply (g_commit _ _ _ _ _ [] example_move []); reflexivity.
    + apply (g_hear _ _ _ _ _ _ _ [] 0 (brings example_move) []).
    + apply (g_issue _ _ _ _ _ _ _ _ _ _ 0 (of_label 1 1)).
      intros l. unfold KeyBudget.set, more, less, brings, of_label. simpl. destruct (Z.eqb_spec l 1), (Z.eqb_spec l 0); lia.
  - reflexivity.
  - reflexivity.
  - reflexivity.
Qed.
