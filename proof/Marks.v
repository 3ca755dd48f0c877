(* Long limits, whose windows have one total in the store each (KeyBudget.v), through restores of the
   store from backups: any number, each under a new cluster ID, with whatever a backup has
   (docs/proof/protocol.md, section 14, the mark). All permits that are issued in the window, by the totals
   of all these stores, are at most the largest limit.

   internal/escrow decides by these functions:

   1. MarkAt.Renewed, RestoredBy and MarkAt.WithKeysTold: [renewed], [put], [told].
   2. MarkAt.Of: [says_of]. Reading.Withheld, which Purse.Next obeys: [hands_out_by].

   No operator says here what was used: neither a count (Total.Corrected) nor a word for all keys
   ([told]) is in the steps. Not covered: a store that is restored under its old ID (SameId.v), a total
   or a mark that is deleted, and a version that knows no mark, in a store that was restored. *)
From Quotient Require Import KeyBudget.
From Coq Require Import Arith List Lia Bool.
Import ListNotations.

(* 1. WHAT INSTANCES DECIDE. Instants are counted from 1; an instant 0 of a mark is none. *)

Record mark := Mark { mark_of : nat; before : nat; keys_told : bool }.
(* The mark's key in the store. *)
Inductive marking := no_mark | bad_mark | marked (m : mark).

(* The mark of a store that was restored before a clock said [clock]. *)
Definition put (here clock e : nat) : mark := Mark here (clock + 2 * e + 1) false.

(* The mark that cluster [here] gets before anything is taken there; None: this one stands. [left] is
   when the instance last followed another store, by its clock; 0: it never did. *)
Definition renewed (m : marking) (here left clock e : nat) : option mark :=
  match m with
  | bad_mark => None
  | marked k =>
      if (mark_of k =? here) && ((left =? 0) || (left + 4 * e + 1 <? before k)) then None
      else Some (put here clock e)
  | no_mark => Some (put here clock e)
  end.

(* The mark after an operator has vouched for the totals of keys. *)
Definition told (m : marking) (here clock e : nat) : mark :=
  let next := match m with marked k => if mark_of k =? here then k else put here clock e | _ => put here clock e end in
  Mark (mark_of next) (before next) true.

(* What a mark at a revision says of a window: whether a missing total says nothing, and since which
   revision an operator has vouched for older totals; 0: none has. *)
Record says := Says { lost : bool; vouched : nat }.
Definition says_of (m : marking) (at_ here start : nat) (keys : bool) : says :=
  match m with
  | marked k =>
      if negb (mark_of k =? here) then Says true 0
      else if keys && keys_told k then Says false at_
      else Says (start <? before k) 0
  | _ => Says true 0
  end.

Record total := Total { writer : nat; is_withheld : bool; unreadable : bool }.
(* Whether permits are handed out, by what was found of the total, at a revision. *)
Definition hands_out_by (s : says) (here : nat) (t : option total) (at_ : nat) : bool :=
  match t with
  | None => negb (lost s)
  | Some t => negb (unreadable t) && ((at_ <? vouched s) || (writer t =? here) && negb (is_withheld t))
  end.

(* 2. THE RUN *)

Section Run.
Variable start : nat. (* of the window *)
Variable keys : bool. (* of a key, or of the provider *)
Variable e : nat. (* bound on the error of clocks *)

(* What an instance has read of the mark and of the total, each at its key's revision. *)
Record reading := Reading { r_mark_at : nat; r_mark : marking; r_total_at : nat; r_total : option total }.

Record world := World {
  here : nat; (* the ID of the cluster that answers *)
  since : nat; (* the instant at which the store was restored *)
  now : nat;
  mark_at : nat;
  mark_now : marking;
  total_at : nat;
  total_now : option total; (* by whom; the numbers are in [store] *)
  store : state; (* what this cluster has handed out *)
  reads : list reading; (* of this cluster *)
  asked : list (transaction * reading); (* sent to this cluster, by a reading *)
  gone : list state (* what the stores of before have handed out *)
}.

(* An instance's mark and total may be of two reads. *)
Definition read_by (w : world) (r : reading) : Prop :=
  exists a b, In a (reads w) /\ In b (reads w) /\
    r = Reading (r_mark_at a) (r_mark a) (r_total_at b) (r_total b).

Definition decides (h : nat) (r : reading) : bool :=
  hands_out_by (says_of (r_mark r) (r_mark_at r) h start keys) h (r_total r) (r_total_at r).

(* A clock has said [c] between the restore and now. *)
Definition by_clock (w : world) (c : nat) : Prop := exists u, since w <= u <= now w /\ u <= c + e.

Definition foreign_total (h : nat) (t : option total) : Prop := forall x, t = Some x -> writer x <> h \/ unreadable x = true.
Definition foreign_mark (h : nat) (m : marking) : Prop := forall k, m = marked k -> mark_of k <> h.
(* The window has a total by which nothing is handed out. *)
Definition stopped (h : nat) (t : option total) : Prop :=
  exists x, t = Some x /\ (writer x <> h \/ is_withheld x = true \/ unreadable x = true).

Inductive step_world : world -> world -> Prop :=
| m_time h u n ma m ta t s r a g n' : n <= n' ->
    step_world (World h u n ma m ta t s r a g) (World h u n' ma m ta t s r a g)
(* An instance reads mark and total. *)
| m_read h u n ma m ta t s r a g :
    step_world (World h u n ma m ta t s r a g) (World h u n ma m ta t s (Reading ma m ta t :: r) a g)
(* It sends a take or a give-back: in the window by its clock, and by what it has read. *)
| m_send h u n ma m ta t s r a g s' x y : step s s' -> flying s' = x :: flying s ->
    start <= n + e -> read_by (World h u n ma m ta t s r a g) y -> decides h y = true ->
    step_world (World h u n ma m ta t s r a g) (World h u n ma m ta t s' r ((x, y) :: a) g)
(* The store commits one, if mark and total are at the revisions read. *)
| m_commit h u n ma m ta t s r a g s' x y : step s s' -> version s' = version s + 1 ->
    out s' = out_after x -> seen_version x = version s ->
    In (x, y) a -> r_mark_at y = ma -> r_total_at y = ta ->
    step_world (World h u n ma m ta t s r a g)
      (World h u n ma m (ta + 1) (Some (Total h false false)) s' r a g)
(* The rest of KeyBudget.v: refusals, answers, permits, crashes, policies. *)
| m_else h u n ma m ta t s r a g s' : step s s' -> version s' = version s -> out s' = out s ->
    (forall x, In x (flying s') -> In x (flying s)) ->
    step_world (World h u n ma m ta t s r a g) (World h u n ma m ta t s' r a g)
(* So it goes on for the stores of before, which commit nothing more: answers come late, and permits
   are issued. *)
| m_gone h u n ma m ta t s r a g1 o o' g2 : step o o' -> version o' = version o -> out o' = out o ->
    step_world (World h u n ma m ta t s r a (g1 ++ o :: g2)) (World h u n ma m ta t s r a (g1 ++ o' :: g2))
(* The store commits what was sent to one of before: a total or a mark of that cluster. *)
| m_late_total h u n ma m ta t s r a g x : writer x <> h ->
    step_world (World h u n ma m ta t s r a g) (World h u n ma m (ta + 1) (Some x) s r a g)
| m_late_mark h u n ma m ta t s r a g k : mark_of k <> h ->
    step_world (World h u n ma m ta t s r a g) (World h u n (ma + 1) (marked k) ta t s r a g)
(* An instance withholds the window: it knows of more than the total says. *)
| m_withhold h u n ma m ta t s r a g x : is_withheld x = true ->
    step_world (World h u n ma m ta t s r a g) (World h u n ma m (ta + 1) (Some x) s r a g)
(* An instance renews the mark, if it is at the revision read. It may have followed another store,
   whenever that was. *)
| m_renew h u n ma m ta t s r a g left clock k :
    by_clock (World h u n ma m ta t s r a g) clock -> renewed m h left clock e = Some k ->
    step_world (World h u n ma m ta t s r a g) (World h u n (ma + 1) (marked k) ta t s r a g)
(* An operator withholds what runs. *)
| m_put h u n ma m ta t s r a g clock : by_clock (World h u n ma m ta t s r a g) clock ->
    step_world (World h u n ma m ta t s r a g) (World h u n (ma + 1) (marked (put h clock e)) ta t s r a g)
(* An operator sets the provider's first long limits, where there is no mark. ASSUMED: not in a store
   that was restored, but where it has a total of the window or no earlier store has handed out any. *)
| m_set h u n ma ta t s r a g : stopped h t \/ (forall o, In o g -> version o = 0) ->
    step_world (World h u n ma no_mark ta t s r a g) (World h u n (ma + 1) (marked (Mark h 0 false)) ta t s r a g)
(* The store is restored under a new ID, with any mark and any total, but none of that ID. *)
| m_restore h u n ma m ta t s r a g ma' m' ta' t' l : foreign_mark (h + 1) m' -> foreign_total (h + 1) t' ->
    step_world (World h u n ma m ta t s r a g)
      (World (h + 1) n n ma' m' ta' t' (State 0 0 (fun _ => 0) (fun _ => 0) [] [] [] l 0) [] [] (s :: g)).

Inductive reached_world : world -> Prop :=
| w_first n l : reached_world (World 0 n n 0 no_mark 0 None (State 0 0 (fun _ => 0) (fun _ => 0) [] [] [] l 0) [] [] [])
| w_step w w' : reached_world w -> step_world w w' -> reached_world w'.

(* 3. WHAT ALWAYS HOLDS *)

(* Nothing of the window is handed out in this store. *)
Definition closed (h : nat) (m : marking) (t : option total) : Prop :=
  stopped h t \/ t = None /\ forall k, m = marked k -> mark_of k = h -> start < before k.

Definition blank (s : state) : Prop := version s = 0.

Record sound_world (w : world) : Prop := {
  eras : forall s, In s (store w :: gone w) -> sound 0 s /\ (blank s -> out s = 0);
  one_hands_out : (forall s, In s (gone w) -> blank s) \/
    (blank (store w) /\ start <= since w + e /\ closed (here w) (mark_now w) (total_now w) /\
      exists s, In s (gone w) /\ list_sum (map out (gone w)) = out s);
  untold : forall k, mark_now w = marked k -> mark_of k = here w -> keys_told k = false;
  began : blank (store w) \/ start <= now w + e;
  asks : forall x y, In (x, y) (asked w) -> start <= now w + e /\ decides (here w) y = true /\
    (r_mark_at y <= mark_at w /\ (r_mark_at y = mark_at w -> r_mark y = mark_now w)) /\
    (r_total_at y <= total_at w /\ (r_total_at y = total_at w -> r_total y = total_now w));
  known : forall y, In y (reads w) ->
    (r_mark_at y <= mark_at w /\ (r_mark_at y = mark_at w -> r_mark y = mark_now w)) /\
    (r_total_at y <= total_at w /\ (r_total_at y = total_at w -> r_total y = total_now w));
  order : since w <= now w
}.

Lemma sends_alone s s' x : step s s' -> flying s' = x :: flying s -> version s' = version s /\ out s' = out s.
Proof.
  intros st E. destruct st; simpl in *; auto; apply (f_equal (@length _)) in E;
    rewrite ?app_length in E; simpl in E; rewrite ?app_length in E; simpl in E; lia.
Qed.

(* A closed window decides against handing out. *)
Lemma closed_decides h ma m ta t : closed h m t ->
  (forall k, m = marked k -> mark_of k = h -> keys_told k = false) ->
  decides h (Reading ma m ta t) = false.
Proof.
  intros C un. unfold decides. simpl.
  assert (vouched (says_of m ma h start keys) = 0) as V.
  { destruct m as [| |k]; simpl; auto. destruct (Nat.eqb_spec (mark_of k) h) as [E | E]; simpl; auto.
    rewrite (un k eq_refl E), andb_false_r. reflexivity. }
  destruct C as [(x & -> & how) | (-> & all)]; simpl.
  - rewrite V. simpl. destruct how as [D | [-> | ->]].
    + apply Nat.eqb_neq in D. rewrite D. simpl. apply andb_false_r.
    + simpl. rewrite andb_false_r. apply andb_false_r.
    + reflexivity.
  - destruct m as [| |k]; simpl; auto. destruct (Nat.eqb_spec (mark_of k) h) as [E | E]; simpl; auto.
    rewrite (un k eq_refl E), andb_false_r. simpl. pose proof (all k eq_refl E) as L.
    apply Nat.ltb_lt in L. rewrite L. reflexivity.
Qed.

Lemma blank_sum g : (forall s, In s g -> sound 0 s /\ (blank s -> out s = 0)) -> (forall s, In s g -> blank s) ->
  list_sum (map out g) = 0.
Proof.
  induction g as [|s g IH]; simpl; intros a b; [reflexivity|].
  rewrite (proj2 (a s (or_introl eq_refl)) (b s (or_introl eq_refl))). apply IH; intros; auto.
Qed.

Lemma first_state l : sound 0 (State 0 0 (fun _ => 0) (fun _ => 0) [] [] [] l 0).
Proof. exact (proj1 (reached_sound l _ (p_first l))). Qed.

(* A mark is written. *)
Lemma mark_written h u n ma m ta t s r a g k : sound_world (World h u n ma m ta t s r a g) ->
  (mark_of k = h -> keys_told k = false) ->
  (mark_of k = h -> (forall o, In o g -> blank o) \/ stopped h t \/ (start <= u + e -> start < before k)) ->
  sound_world (World h u n (ma + 1) (marked k) ta t s r a g).
Proof.
  intros [er on un be as_ kn od] T C. simpl in *. constructor; simpl; auto.
  - destruct on as [N | (B & L & [S | (T' & _)] & z)]; [left; exact N| |].
    + right. split; [exact B|]. split; [exact L|]. split; [left; exact S|exact z].
    + destruct (Nat.eq_dec (mark_of k) h) as [E | E].
      * destruct (C E) as [N | [S | D]]; [left; exact N| |]; right; (split; [exact B|]); (split; [exact L|]); (split; [|exact z]).
        -- left. exact S.
        -- right. split; [exact T'|]. intros k' [= <-] _. exact (D L).
      * right. split; [exact B|]. split; [exact L|]. split; [|exact z]. right. split; [exact T'|].
        intros k' [= <-] E'. contradiction.
  - intros k' [= <-]. exact T.
  - intros x y I. destruct (as_ x y I) as (p & q & (r1 & r2) & r3).
    split; [exact p|]. split; [exact q|]. split; [split; [lia|intros; lia]|exact r3].
  - intros y I. destruct (kn y I) as ((r1 & r2) & r3). split; [split; [lia|intros; lia]|exact r3].
Qed.

(* A total is written by which nothing is handed out. *)
Lemma total_written h u n ma m ta t s r a g x : sound_world (World h u n ma m ta t s r a g) ->
  writer x <> h \/ is_withheld x = true -> sound_world (World h u n ma m (ta + 1) (Some x) s r a g).
Proof.
  intros [er on un be as_ kn od] W. simpl in *. constructor; simpl; auto.
  - destruct on as [N | (B & L & _ & z)]; [left; exact N|right]. split; [exact B|]. split; [exact L|]. split; [|exact z].
    left. exists x. tauto.
  - intros x' y I. destruct (as_ x' y I) as (p & q & r1 & (r2 & r3)).
    split; [exact p|]. split; [exact q|]. split; [exact r1|]. split; [lia|intros; lia].
  - intros y I. destruct (kn y I) as (r1 & (r2 & r3)). split; [exact r1|]. split; [lia|intros; lia].
Qed.

Lemma put_covers h u n clock : (exists v, u <= v <= n /\ v <= clock + e) -> start <= u + e -> start < before (put h clock e).
Proof. intros (v & (a & _) & b) S. simpl. lia. Qed.

Lemma world_sound w : reached_world w -> sound_world w.
Proof.
  induction 1 as [n l|w w' _ IH st].
  - constructor; simpl; auto; try discriminate; try tauto.
    + intros s [<- | []]. split; [apply first_state|reflexivity].
    + left. reflexivity.
  - destruct IH as [er on un be as_ kn od].
    destruct st as [h u n ma m ta t s r a g n' L|h u n ma m ta t s r a g|h u n ma m ta t s r a g s' x y st F L R D|
      h u n ma m ta t s r a g s' x y st V O Sv I Em Et|h u n ma m ta t s r a g s' st V O F|
      h u n ma m ta t s r a g1 o o' g2 st V O|h u n ma m ta t s r a g x W|h u n ma m ta t s r a g k W|
      h u n ma m ta t s r a g x W|h u n ma m ta t s r a g left clock k B R|
      h u n ma m ta t s r a g clock B|h u n ma ta t s r a g W|h u n ma m ta t s r a g ma' m' ta' t' l Fm Ft]; simpl in *.
    + (* Time. *)
      constructor; simpl; auto; [destruct be; [left; auto|right; lia]| |lia].
      intros x y I. destruct (as_ x y I) as (b & rest). split; [lia|exact rest].
    + (* A read. *)
      constructor; simpl; auto. intros y [<- | I]; [simpl; auto|auto].
    + (* An instance sends. *)
      destruct (sends_alone _ _ _ st F) as (V & O).
      constructor; simpl; unfold blank in *; auto.
      * intros o [<- | I]; [|auto]. destruct (er s (or_introl eq_refl)) as (S & B).
        split; [eapply step_sound; eassumption|rewrite V, O; exact B].
      * rewrite V. exact on.
      * intros x' y' [[= <- <-] | I]; [|exact (as_ x' y' I)]. split; [exact L|]. split; [exact D|].
        destruct R as (p & q & Ip & Iq & ->). simpl in *. split; [apply (kn p Ip)|apply (kn q Iq)].
    + (* The store commits. *)
      destruct (as_ _ _ I) as (b & d & (_ & Em') & (_ & Et')). specialize (Em' Em). specialize (Et' Et).
      assert (decides h (Reading ma m ta t) = true) as D by (destruct y; simpl in *; subst; exact d). clear d Em' Et'.
      assert (forall o, In o g -> blank o) as none.
      { destruct on as [N | (_ & _ & C & _)]; [exact N|]. rewrite (closed_decides h ma m ta t C un) in D. discriminate. }
      constructor; simpl; unfold blank in *; auto.
      * intros o [<- | J]; [|auto]. destruct (er s (or_introl eq_refl)) as (S & B).
        split; [eapply step_sound; eassumption|intros; lia].
      * intros x' y' J. destruct (as_ _ _ J) as (p & q & r1 & (r2 & r3)).
        split; [exact p|]. split; [exact q|]. split; [exact r1|]. split; [lia|intros; lia].
      * intros y' J. destruct (kn _ J) as (r1 & (r2 & r3)). split; [exact r1|]. split; [lia|intros; lia].
    + (* The rest. *)
      constructor; simpl; unfold blank in *; auto.
      * intros o [<- | I]; [|auto]. destruct (er s (or_introl eq_refl)) as (S & B).
        split; [eapply step_sound; eassumption|rewrite V, O; exact B].
      * rewrite V. exact on.
      * rewrite V. exact be.
    + (* A store of before. *)
      constructor; simpl; unfold blank in *; auto.
      * intros x [<- | I]; [auto|]. apply in_app_iff in I as [I | [<- | I]].
        -- apply er. right. apply in_app_iff. auto.
        -- destruct (er o ltac:(right; apply in_app_iff; simpl; auto)) as (S & B).
           split; [eapply step_sound; eassumption|rewrite V, O; exact B].
        -- apply er. right. apply in_app_iff. simpl. auto.
      * assert (list_sum (map out (g1 ++ o' :: g2)) = list_sum (map out (g1 ++ o :: g2))) as E
          by (rewrite !sum_middle, O; reflexivity).
        destruct on as [N | (B & L & C & z & I & Z)].
        -- left. intros x I. apply in_app_iff in I as [I | [<- | I]].
           ++ apply N, in_app_iff. auto.
           ++ rewrite V. apply N, in_app_iff. simpl. auto.
           ++ apply N, in_app_iff. simpl. auto.
        -- right. split; [exact B|]. split; [exact L|]. split; [exact C|]. rewrite E, Z.
           apply in_app_iff in I as [I | [<- | I]].
           ++ exists z. split; [apply in_app_iff; auto|reflexivity].
           ++ exists o'. split; [apply in_app_iff; simpl; auto|symmetry; exact O].
           ++ exists z. split; [apply in_app_iff; simpl; auto|reflexivity].
    + (* A late total. *)
      apply total_written with (t := t); [constructor; assumption|auto].
    + (* A late mark. *)
      apply mark_written with (m := m); [constructor; assumption|contradiction|contradiction].
    + (* An instance withholds the window. *)
      apply total_written with (t := t); [constructor; assumption|auto].
    + (* An instance renews the mark. *)
      apply mark_written with (m := m); [constructor; assumption| |].
      * intros E. destruct m as [| |k']; simpl in R; [|discriminate|destruct (_ && _); [discriminate|]];
          injection R as <-; reflexivity.
      * intros E. right. right. destruct m as [| |k']; simpl in R; [|discriminate|destruct (_ && _); [discriminate|]];
          injection R as <-; apply (put_covers h u n), B.
    + (* An operator withholds. *)
      apply mark_written with (m := m); [constructor; assumption|reflexivity|].
      intros _. right. right. apply (put_covers h u n), B.
    + (* An operator sets the first limits. *)
      apply mark_written with (m := no_mark); [constructor; assumption|reflexivity|].
      intros _. destruct W as [S | N]; auto.
    + (* The store is restored. *)
      constructor; simpl; auto; try discriminate.
      * intros o [<- | I]; [|auto]. split; [apply first_state|reflexivity].
      * assert (forall o, In o g -> sound 0 o /\ (blank o -> out o = 0)) as eg by auto.
        assert (start <= n + e -> (exists z, In z (s :: g) /\ list_sum (map out (s :: g)) = out z) ->
          (forall o, s = o \/ In o g -> blank o) \/ blank (State 0 0 (fun _ => 0) (fun _ => 0) [] [] [] l 0) /\
          start <= n + e /\ closed (h + 1) m' t' /\ exists z, (s = z \/ In z g) /\ out s + list_sum (map out g) = out z) as again.
        { intros L z. right. split; [reflexivity|]. split; [exact L|]. split; [|exact z].
          destruct t' as [x|]; [left; exists x; destruct (Ft x eq_refl); auto|right].
          split; [reflexivity|]. intros k E E'. destruct (Fm k E E'). }
        destruct on as [N | (B & L & _ & z & I & Z)].
        -- destruct be as [B | L]; [left; intros o [<- | I]; auto|]. apply again; [exact L|].
           exists s. simpl. rewrite (blank_sum g eg N). auto.
        -- apply again; [lia|]. exists z. simpl. rewrite (proj2 (er s (or_introl eq_refl)) B). auto.
      * intros k E E'. destruct (Fm k E E').
      * left. reflexivity.
      * tauto.
      * tauto.
Qed.

(* All permits that are issued in the window, and may still be, by the totals of all the stores, are at
   most the largest limit so far. *)
Theorem marked_never_over w ids M : reached_world w -> NoDup ids ->
  (forall s, In s (store w :: gone w) -> forall q, q <= policy s -> limits s q <= M) ->
  list_sum (map (fun s => held s ids) (store w :: gone w)) <= M.
Proof.
  intros H nd all. apply world_sound in H as [er on _ _ _ _ _].
  assert (forall l, (forall s, In s l -> sound 0 s) -> list_sum (map (fun s => held s ids) l) <= list_sum (map out l)) as fit.
  { induction l as [|s l IH]; simpl; intros S; [lia|].
    pose proof (fits 0 s (S s (or_introl eq_refl)) ids nd). specialize (IH (fun x I => S x (or_intror I))). lia. }
  specialize (fit (store w :: gone w) (fun s I => proj1 (er s I))).
  enough (exists s, In s (store w :: gone w) /\ list_sum (map out (store w :: gone w)) = out s) as (s & I & E).
  { pose proof (below 0 s (proj1 (er s I)) M (all s I)). lia. }
  destruct on as [N | (B & _ & _ & s & I & E)].
  - exists (store w). simpl. rewrite (blank_sum (gone w)); auto. intros s I. apply er. right. exact I.
  - exists s. simpl. rewrite (proj2 (er (store w) (or_introl eq_refl)) B). auto.
Qed.
End Run.

(* What m_set assumes is needed. Window 1 of a key has 5 permits, all taken; a backup of before that is
   restored. *)
Definition take_all := Transaction 0 takes 0 0 5.
Definition of_five (s : state) (l : list state) : world :=
  World 1 1 1 0 no_mark 0 None s [] [] l.
Lemma a_restored_store : exists o, out o = 5 /\
  reached_world 1 true 0 (of_five (State 0 0 (fun _ => 0) (fun _ => 0) [] [] [] (fun _ => 5) 0) [o]).
Proof.
  set (l := fun _ : nat => 5). set (f := fun _ : nat => 0). set (m := marked (Mark 0 0 false)).
  set (y := Reading 1 m 0 None). set (o := State 0 0 f f [] [] [] l 0).
  exists (State 5 1 f f [] [(true, take_all)] [take_all] l 0). split; [reflexivity|].
  eapply w_step; [eapply w_step; [eapply w_step; [eapply w_step; [eapply w_step; [apply (w_first 1 true 0 1 l)|]|]|]|]|].
  - apply m_set. right. intros x [].
  - apply m_read.
  - apply (m_send 1 true 0 0 1 1 1 m 0 None o [y] [] [] (State 0 0 f f [take_all] [] [] l 0) take_all y).
    + apply (p_take _ _ _ _ _ _ _ _ _ 0 0 0 5 0); auto.
    + reflexivity.
    + auto.
    + exists y, y. simpl. auto.
    + reflexivity.
  - eapply (m_commit 1 true 0 0 1 1 1 m 0 None _ [y] [(take_all, y)] [] (State 5 1 f f [] [(true, take_all)] [take_all] l 0) take_all y);
      [apply (p_commit 0 0 f f [] take_all []); reflexivity|try reflexivity..]. left. reflexivity.
  - apply m_restore; discriminate.
Qed.

(* A mark without an instant hands all of it out again: of an operator who sets the limit again. *)
Theorem set_again_it_breaks : exists w o, reached_world 1 true 0 w /\ gone w = [o] /\ out o = 5 /\
  mark_now w = no_mark /\ total_now w = None /\
  decides 1 true (here w) (Reading 1 (marked (Mark (here w) 0 false)) 0 None) = true.
Proof.
  destruct a_restored_store as (o & E & R). eexists. exists o. split; [exact R|]. repeat split; auto.
Qed.
