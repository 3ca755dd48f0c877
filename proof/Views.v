(* The division of a total and the revisions that give, as functions of what two views show of
   one window (docs/proof/protocol.md, sections 1 and 2). They satisfy [fit] and [taking] of
   Statement.v. Extract.v makes programs of them, which the shipped code is compared with. *)
From Quotient Require Import Sum Division.
From Coq Require Import Lia Lqa Qfield.
Open Scope nat_scope.

(* An instance in a division, its claim, has the number of its ID, and v in parts of 2^64. Whether
   a ranks before b: of two at one place it is that of the smaller ID. *)
Definition before_it (a b : nat * Z) : bool :=
  (Z.ltb (snd a) (snd b)) || (Z.eqb (snd a) (snd b) && Nat.ltb (fst a) (fst b)).
Definition before_count (all : list (nat * Z)) (i : nat * Z) : nat := length (filter (fun o => before_it o i) all).

(* Floor(T/n), and one more if fewer than T mod n instances rank before it. *)
Definition equally (T : nat) (all : list (nat * Z)) (i : nat * Z) : nat :=
  part T (length all) (before_count all i).

(* An instance's key in a view. It takes part from [from] on and before [until]. *)
Record member := Member { ident : nat; from : Z; until : Z }.

(* What a view shows of one window. [limit] is the policy's, if there is a limit. *)
Record policy := Policy {
  limit : option nat;
  in_force : bool;
  supported : bool;
  paused : bool;
  times : list nat; (* S, S', e and g *)
  owners : nat (* of each key; 0: all that take part *)
}.
Record shown := Shown { terms : policy; members : list member }.

(* [begins] is the window's start, and [rank] gives v of each ID. *)
Section Window.
Variables (begins : Z) (rank : nat -> Z).

Definition takes_part (m : member) : bool := ((from m <=? begins) && (begins <? until m))%Z.
Definition ended (m : member) : bool := (until m <=? begins)%Z.

Definition claim_of (m : member) : nat * Z := (ident m, rank (ident m)).
Definition claims (u : shown) : list (nat * Z) := map claim_of (filter takes_part (members u)).

(* What is divided: nothing of a limit that is not in force, paused or not supported. *)
Definition amount (p : policy) : option nat :=
  if in_force p && supported p && negb (paused p) then limit p else Some 0.

Definition find_claim (i : nat) (all : list (nat * Z)) : option (nat * Z) := find (fun m => fst m =? i) all.

(* The share of an incarnation; None if the view does not bind it. *)
Definition share_of (u : shown) (i : nat) : option nat :=
  match find_claim i (claims u) with
  | Some m => match amount (terms u) with Some T => Some (equally T (claims u) m) | None => None end
  | None => Some 0
  end.

(* Two policies divide in the same way. *)
Fixpoint same_times (a b : list nat) : bool :=
  match a, b with [], [] => true | s :: a, t :: b => (s =? t) && same_times a b | _, _ => false end.
Definition divides_as (p q : policy) : bool := owners p =? owners q.
Definition same_limit (a b : option nat) : bool :=
  match a, b with None, None => true | Some n, Some m => n =? m | _, _ => false end.
Definition same_policy (p q : policy) : bool :=
  same_limit (limit p) (limit q) && Bool.eqb (in_force p) (in_force q) && Bool.eqb (supported p) (supported q) &&
  Bool.eqb (paused p) (paused q) && divides_as p q.

(* Rule 3 of section 2, of the policies; [written] if the revision writes the policy. *)
Definition policy_gives (written : bool) (p q : policy) : bool :=
  (negb written && same_policy p q) ||
  (same_times (times p) (times q) && supported p && supported q && in_force p && in_force q &&
   match limit p, limit q with Some T, Some T' => T <=? T' | _, _ => false end &&
   (negb (paused q) || paused p) && divides_as p q).

(* ... and of the instances: each takes part in both views, or in neither. One that takes part
   may also end. *)
Definition find_member (i : nat) (all : list member) : option member := find (fun m => ident m =? i) all.
Definition keeps (u v : shown) : bool :=
  forallb (fun m => negb (takes_part m) ||
    match find_member (ident m) (members v) with
    | Some n => ended n || takes_part n
    | None => false
    end) (members u) &&
  forallb (fun n => negb (takes_part n) ||
    match find_member (ident n) (members u) with Some m => takes_part m | None => false end) (members v).

(* Whether the revision between two views gives. *)
Definition gives_of (written : bool) (u v : shown) : bool :=
  keeps u v && policy_gives written (terms u) (terms v).
End Window.

(* The smallest share of the views that an incarnation held, oldest first, each with whether its
   next revision gives. The newest always counts; None binds nobody. *)
Definition least (a b : option nat) : option nat :=
  match a, b with Some n, Some m => Some (Nat.min n m) | Some n, None => Some n | None, _ => b end.
Fixpoint bound_of (older : list (option nat * bool)) (newest : option nat) : option nat :=
  match older with
  | [] => newest
  | (share, gives) :: older => if gives then bound_of older newest else least share (bound_of older newest)
  end.
Definition within (n : nat) (bound : option nat) : Prop := match bound with Some m => n <= m | None => True end.

(* PROOFS. *)

(* Ranks are in a strict order, and below the number of instances. *)
Lemma before_it_self a : before_it a a = false.
Proof. unfold before_it. rewrite Z.ltb_irrefl, Nat.ltb_irrefl, Bool.andb_false_r. reflexivity. Qed.

Lemma before_it_trans a b c : before_it a b = true -> before_it b c = true -> before_it a c = true.
Proof.
  unfold before_it. destruct (Z.ltb_spec (snd a) (snd b)), (Z.ltb_spec (snd b) (snd c)), (Z.ltb_spec (snd a) (snd c)),
    (Z.eqb_spec (snd a) (snd b)), (Z.eqb_spec (snd b) (snd c)), (Z.eqb_spec (snd a) (snd c)),
    (Nat.ltb_spec (fst a) (fst b)), (Nat.ltb_spec (fst b) (fst c)), (Nat.ltb_spec (fst a) (fst c)); simpl; try lia; auto.
Qed.

Lemma before_it_one a b : fst a <> fst b -> before_it a b = true \/ before_it b a = true.
Proof.
  unfold before_it. destruct (Z.ltb_spec (snd a) (snd b)), (Z.ltb_spec (snd b) (snd a)),
    (Z.eqb_spec (snd a) (snd b)), (Z.eqb_spec (snd b) (snd a)),
    (Nat.ltb_spec (fst a) (fst b)), (Nat.ltb_spec (fst b) (fst a)); simpl; try lia; auto.
Qed.

Lemma filter_length_le {A} (f g : A -> bool) l : (forall a, f a = true -> g a = true) ->
  length (filter f l) <= length (filter g l).
Proof. intros fg. induction l as [|a l IH]; simpl; [lia|]. specialize (fg a). destruct (f a), (g a); simpl; intuition; try lia. Qed.

Lemma filter_length_lt {A} (f g : A -> bool) l x : (forall a, f a = true -> g a = true) -> In x l ->
  f x = false -> g x = true -> length (filter f l) < length (filter g l).
Proof.
  intros fg. induction l as [|a l IH]; simpl; [tauto|]. intros [-> | I] fx gx.
  - rewrite fx, gx. simpl. pose proof (filter_length_le f g l fg). lia.
  - specialize (IH I fx gx). specialize (fg a). destruct (f a), (g a); simpl; intuition; lia.
Qed.

Lemma before_count_less all a b : In a all -> before_it a b = true -> before_count all a < before_count all b.
Proof.
  intros I ab. apply filter_length_lt with (x := a); auto; [|apply before_it_self].
  intros o oa. eapply before_it_trans; eassumption.
Qed.

Lemma before_count_below all i : In i all -> before_count all i < length all.
Proof.
  intros I. assert (length (filter (fun _ => true) all) = length all) as <-.
  { clear I. induction all as [|o all IH]; [reflexivity|]. simpl. rewrite IH. reflexivity. }
  apply filter_length_lt with (x := i); auto. apply before_it_self.
Qed.

Lemma same_one {A} (f : A -> nat) l a b : NoDup (map f l) -> In a l -> In b l -> f a = f b -> a = b.
Proof.
  induction l as [|c l IH]; intros nd I J E; [destruct I|]. simpl in nd. apply NoDup_cons_iff in nd as [new nd].
  destruct I as [<- | I], J as [<- | J]; auto.
  - destruct new. rewrite E. apply in_map, J.
  - destruct new. rewrite <- E. apply in_map, I.
Qed.

Lemma once_each {A} (f g : A -> nat) l : NoDup (map f l) ->
  (forall a b, In a l -> In b l -> f a <> f b -> g a <> g b) -> NoDup (map g l).
Proof.
  induction l as [|c l IH]; intros nd H; simpl; [constructor|]. simpl in nd. apply NoDup_cons_iff in nd as [new nd].
  constructor; [|apply IH; [exact nd|intros a b I J; apply H; right; assumption]].
  intros I. apply in_map_iff in I as (a & E & I). apply (H a c (or_intror I) (or_introl eq_refl)); [|exact E].
  intros F. apply new. rewrite <- F. apply in_map, I.
Qed.

Lemma before_counts_differ all : NoDup (map fst all) -> NoDup (map (before_count all) all).
Proof.
  intros nd. apply (once_each fst); [exact nd|]. intros a b I J differ.
  destruct (before_it_one a b differ) as [P | P]; apply (before_count_less all) in P; try assumption; lia.
Qed.

Lemma sum_incl {A} (f : A -> nat) l : forall l', NoDup l -> incl l l' -> sum f l <= sum f l'.
Proof.
  unfold sum. induction l as [|a l IH]; intros l' nd sub; simpl; [lia|]. apply NoDup_cons_iff in nd as [new nd].
  destruct (in_split a l' (sub a (or_introl eq_refl))) as (l1 & l2 & ->).
  specialize (IH (l1 ++ l2) nd). rewrite map_app, list_sum_app in *. simpl.
  enough (list_sum (map f l) <= list_sum (map f l1) + list_sum (map f l2)) by lia. apply IH.
  intros b I. specialize (sub b (or_intror I)). apply in_app_or in sub as [J | [<- | J]]; [|contradiction|];
    apply in_or_app; auto.
Qed.

Lemma equally_fits T all : NoDup (map fst all) -> sum (equally T all) all <= T.
Proof.
  intros nd. destruct all as [|m0 rest] eqn:E; [unfold sum; simpl; lia|]. rewrite <- E in *.
  eapply Nat.le_trans; [|apply Nat.eq_le_incl, (parts_fit T (length all)); rewrite E; discriminate].
  assert (sum (equally T all) all = sum (part T (length all)) (map (before_count all) all)) as ->.
  { unfold sum. rewrite map_map. reflexivity. }
  apply sum_incl.
  - apply before_counts_differ, nd.
  - intros r I. apply in_map_iff in I as (m & <- & I). apply in_seq. split; [lia|]. exact (before_count_below all m I).
Qed.

Lemma sum_ones {A} (f : A -> bool) l : length (filter f l) = sum (fun a => if f a then 1 else 0) l.
Proof. unfold sum. induction l as [|a l IH]; simpl; [reflexivity|]. rewrite <- IH. destruct (f a); reflexivity. Qed.

Lemma equally_grows T T' all all' m : T <= T' -> In m all' -> NoDup all' -> incl all' all ->
  equally T all m <= equally T' all' m.
Proof.
  intros le I nd sub.
  assert (forall f : nat * Z -> nat, sum f all' <= sum f all) as fewer by (intros f; apply sum_incl; assumption).
  clear nd sub. unfold equally. apply equal_part_grows.
  - exact le.
  - specialize (fewer (fun _ => 1)). unfold sum in fewer. clear I. revert fewer.
    assert (forall l : list (nat * Z), list_sum (map (fun _ => 1) l) = length l) as H.
    { induction l as [|o l IH]; simpl; lia. }
    rewrite !H. auto.
  - destruct all'; [destruct I|discriminate].
  - unfold before_count. rewrite !sum_ones. apply fewer.
Qed.

Lemma nodup_filter {A} (f : A -> nat) (g : A -> bool) l : NoDup (map f l) -> NoDup (map f (filter g l)).
Proof.
  induction l as [|a l IH]; intros nd; [constructor|]. simpl in *. apply NoDup_cons_iff in nd as [new nd].
  destruct (g a); [|apply IH, nd]. simpl. constructor; [|apply IH, nd].
  intros I. apply new. apply in_map_iff in I as (b & <- & I). apply filter_In in I. apply in_map, I.
Qed.

Section Shown.
Variables (begins : Z) (rank : nat -> Z).

Lemma claims_once u : NoDup (map ident (members u)) -> NoDup (map fst (claims begins rank u)).
Proof. intros nd. unfold claims. rewrite map_map. simpl. apply nodup_filter, nd. Qed.

Definition permits_of (u : shown) (i : nat) : nat := match share_of begins rank u i with Some n => n | None => 0 end.

(* The shares by a view sum to at most what is divided, whatever incarnations are counted. *)
Theorem shares_fit u T l : NoDup (map ident (members u)) -> amount (terms u) = Some T -> NoDup l ->
  sum (permits_of u) l <= T.
Proof.
  intros nd some once.
  eapply Nat.le_trans; [|apply (equally_fits T (claims begins rank u)), claims_once, nd].
  set (f := equally T (claims begins rank u)).
  assert (sum (permits_of u) l = sum (fun i => match find_claim i (claims begins rank u) with Some m => f m | None => 0 end) l) as ->.
  { unfold sum. f_equal. apply map_ext. intros i. unfold permits_of, share_of. rewrite some.
    destruct (find_claim i (claims begins rank u)); reflexivity. }
  generalize (claims begins rank u). intros all. clear - once. unfold sum.
  induction all as [|m all IH].
  - simpl. clear. induction l; simpl; lia.
  - simpl. eapply Nat.le_trans; [|apply Nat.add_le_mono_l, IH]. clear IH.
    induction once as [|i l new once IH]; simpl; [lia|].
    destruct (Nat.eqb_spec (fst m) i) as [E | E]; [|lia].
    enough (list_sum (map (fun i => match (if fst m =? i then Some m else find_claim i all) with Some m => f m | None => 0 end) l) <=
      list_sum (map (fun i => match find_claim i all with Some m => f m | None => 0 end) l)) by lia.
    clear IH once. induction l as [|j l IH]; simpl; [lia|].
    destruct (Nat.eqb_spec (fst m) j) as [F | F]; [destruct new; left; congruence|].
    specialize (IH ltac:(intros H; apply new; right; exact H)). lia.
Qed.

Definition at_most (a b : option nat) : Prop :=
  match a, b with _, None => True | Some n, Some m => n <= m | None, Some _ => False end.

(* If a revision gives, the amount does not fall. *)
Lemma policy_gives_grows written p q : policy_gives written p q = true ->
  at_most (amount p) (amount q).
Proof.
  intros H. apply orb_prop in H as [H | H].
  - apply andb_prop in H as [_ H]. unfold same_policy in H. repeat (apply andb_prop in H as [H ?]).
    repeat match goal with E : Bool.eqb _ _ = true |- _ => apply eqb_prop in E end. unfold amount.
    rewrite <- H1, <- H2, <- H3. destruct (in_force p && supported p && negb (paused p)); [|simpl; lia].
    unfold same_limit in H. destruct (limit p), (limit q); simpl; try discriminate; try exact I.
    apply Nat.eqb_eq in H. lia.
  - repeat (apply andb_prop in H as [H ?]).
    unfold amount. rewrite H3, H4, H5, H6. simpl.
    destruct (limit p) as [T|], (limit q) as [T'|]; try discriminate. apply Nat.leb_le in H2.
    destruct (paused p), (paused q); simpl in *; try discriminate; lia.
Qed.

Lemma find_once {A} (f : A -> nat) l m : NoDup (map f l) -> In m l -> find (fun n => f n =? f m) l = Some m.
Proof.
  intros nd I. destruct (find (fun n => f n =? f m) l) as [n|] eqn:F.
  - apply find_some in F as [J E]. apply Nat.eqb_eq in E. f_equal. eapply same_one; eassumption.
  - apply find_none with (x := m) in F; [|exact I]. rewrite Nat.eqb_refl in F. discriminate.
Qed.

(* A revision that gives takes permits from nobody, but from those that have ended. *)
Theorem giving_takes_nothing written u v i :
  NoDup (map ident (members u)) -> NoDup (map ident (members v)) -> gives_of begins written u v = true ->
  at_most (share_of begins rank u i) (share_of begins rank v i) \/
  exists n, In n (members v) /\ ident n = i /\ (until n <= begins)%Z.
Proof.
  intros nu nv H. unfold gives_of in H. apply andb_prop in H as [K P]. apply andb_prop in K as [K L].
  apply policy_gives_grows in P as grows.
  rewrite forallb_forall in K, L.
  (* Each claim of v is one of u. *)
  assert (incl (claims begins rank v) (claims begins rank u)) as sub.
  { intros c I. apply in_map_iff in I as (n & <- & I). apply filter_In in I as [I T].
    specialize (L n I). rewrite T in L. simpl in L. destruct (find_member (ident n) (members u)) as [m|] eqn:F; [|discriminate].
    apply find_some in F as [J E]. apply Nat.eqb_eq in E. specialize (K m J). rewrite L in K. simpl in K.
    rewrite E in K. unfold find_member in K. rewrite (find_once ident) in K by assumption.
    apply in_map_iff. exists m. split; [unfold claim_of; rewrite E; reflexivity|apply filter_In; auto]. }
  unfold share_of at 1. destruct (find_claim i (claims begins rank u)) as [c|] eqn:F.
  2:{ left. destruct (share_of begins rank v i); simpl; [lia|exact I]. }
  apply find_some in F as [I E]. apply Nat.eqb_eq in E. pose proof I as inU.
  apply in_map_iff in I as (m & <- & I). apply filter_In in I as [I T]. simpl in E.
  specialize (K m I). rewrite T in K. simpl in K. rewrite E in K.
  destruct (find_member i (members v)) as [n|] eqn:F; [|discriminate].
  apply find_some in F as [J G]. apply Nat.eqb_eq in G. apply orb_prop in K as [K | K].
  { right. exists n. split; [exact J|]. split; [exact G|]. apply Z.leb_le, K. }
  left. assert (claim_of rank m = claim_of rank n) as same by (unfold claim_of; congruence).
  assert (In (claim_of rank m) (claims begins rank v)) as inV.
  { rewrite same. apply in_map, filter_In. auto. }
  unfold share_of. rewrite same in *. unfold find_claim.
  replace i with (fst (claim_of rank n)) by exact G.
  rewrite find_once by (try apply claims_once; assumption).
  destruct (amount (terms u)), (amount (terms v)); simpl in grows |- *; try contradiction; try exact Logic.I.
  apply equally_grows; try assumption. eapply NoDup_map_inv, claims_once, nv.
Qed.
End Shown.

(* What the bound allows is what each view allows that counts. *)
Lemma bound_of_within n older newest : within n (bound_of older newest) <->
  within n newest /\ forall share, In (share, false) older -> within n share.
Proof.
  induction older as [|[share gives] older IH]; simpl; [tauto|].
  assert (forall a b, within n (least a b) <-> within n a /\ within n b) as both.
  { intros [a|] [b|]; simpl; try tauto. lia. }
  destruct gives.
  - rewrite IH. split; intros [N H]; split; auto. intros s [E | I]; [discriminate|auto].
  - rewrite both, IH. split.
    + intros (S' & N & H). split; [exact N|]. intros s [E | I]; [injection E as <-; exact S'|auto].
    + intros (N & H). repeat split; auto.
Qed.

(* [bound_of] is rule 3 of Statement.v: of the views that an incarnation held from A on. *)
Definition older_views (x : world) (p : permit) (A : Q) : list (option nat * bool) :=
  map (fun v => (Some (share x v (who p) (win p)), gives x v (win p)))
    (seq (newest x (who p) A) (newest x (who p) (at_ p) - newest x (who p) A)).

Theorem bound_is_held x p A n : newest x (who p) A <= newest x (who p) (at_ p) ->
  (forall v, newest x (who p) A <= v <= newest x (who p) (at_ p) -> applied x (who p) v) ->
  within n (bound_of (older_views x p A) (Some (share x (newest x (who p) (at_ p)) (who p) (win p)))) <->
  (forall v, held x p A v -> n <= share x v (who p) (win p)).
Proof.
  intros le all. rewrite bound_of_within. simpl. split.
  - intros (N & H) v (_ & range & [-> | G]); [exact N|].
    destruct (Nat.eq_dec v (newest x (who p) (at_ p))) as [-> | E]; [exact N|].
    apply (H (Some (share x v (who p) (win p)))). apply in_map_iff. exists v. rewrite G. split; [reflexivity|].
    apply in_seq. lia.
  - intros H. split; [apply H; repeat split; auto|]. intros s I. apply in_map_iff in I as (v & E & I).
    injection E as <- G. apply in_seq in I. simpl. apply H. split; [apply all; lia|]. split; [lia|right; exact G].
Qed.

(* The timing rule, as a test. *)
Definition least_settle (S' e r w : Q) : Q := (S' * (1 + r) / (1 - r) + 2 * e * (1 + r) + w * r)%Q.
Definition timely (S S' e r w : Q) : bool := Qle_bool (least_settle S' e r w) S.
Theorem timely_is_timing x : timely (settle x) (freshness x) (clock_error x) (drift x) (width x) = true <-> timing x.
Proof. apply Qle_bool_iff. Qed.

(* Views that show limits, and shares and revisions that are computed from what they show,
   satisfy what Statement.v assumes of them. *)
Record computed (x : world) (shows : view -> window -> shown) (begins : window -> Z)
    (rank : window -> nat -> Z) (written : view -> bool) : Prop := {
  known : forall v W, NoDup (map ident (members (shows v W)));
  limited : forall v W, amount (terms (shows v W)) = Some (total x v W);
  shared : forall v W i, share_of (begins W) (rank W) (shows v W) i = Some (share x v i W);
  given : forall v W, gives x v W = gives_of (begins W) (written v) (shows v W) (shows (v + 1) W);
  told_end : forall v W n, In n (members (shows v W)) -> (until n <= begins W)%Z ->
    exists U, ends x v (ident n) = Some U /\ (U <= start x W)%Q
}.

Theorem computed_fits x shows begins rank written : computed x shows begins rank written ->
  forall u W l, NoDup l -> sum (fun i => share x u i W) l <= total x u W.
Proof.
  intros c u W l nd.
  pose proof (shares_fit (begins W) (rank W) (shows u W) (total x u W) l (known _ _ _ _ _ c u W) (limited _ _ _ _ _ c u W) nd) as H.
  eapply Nat.le_trans; [|exact H]. apply sum_le. intros i _. unfold permits_of.
  rewrite (shared _ _ _ _ _ c). apply Nat.le_refl.
Qed.

Theorem computed_takes x shows begins rank written : computed x shows begins rank written ->
  forall v W i, gives x v W = true ->
  share x v i W <= share x (v + 1) i W \/ exists U, ends x (v + 1) i = Some U /\ (U <= start x W)%Q.
Proof.
  intros c v W i G. rewrite (given _ _ _ _ _ c) in G.
  destruct (giving_takes_nothing (begins W) (rank W) (written v) (shows v W) (shows (v + 1) W) i
    (known _ _ _ _ _ c v W) (known _ _ _ _ _ c (v + 1) W) G) as [le | (n & I & <- & early)].
  - left. rewrite !(shared _ _ _ _ _ c) in le. exact le.
  - right. apply (told_end _ _ _ _ _ c _ _ _ I early).
Qed.

(* The least settle time as the code computes it: in whole units of time, where r is 1/d, each
   part rounded up, and their sum to a multiple of [step]. It satisfies the timing rule. *)
Definition rounded_up (a b : Z) : Z := ((a + b - 1) / b)%Z.
Definition min_settle (d step S' e w : Z) : Z :=
  (let need := rounded_up (S' * (d + 1)) (d - 1) + rounded_up (2 * e * (d + 1)) d + rounded_up w d in
   rounded_up need step * step)%Z.

Lemma rounded_up_enough a b : (0 < b)%Z -> (a <= rounded_up a b * b)%Z.
Proof.
  intros b0. unfold rounded_up. pose proof (Z.div_mod (a + b - 1) b ltac:(lia)).
  pose proof (Z.mod_pos_bound (a + b - 1) b b0). nia.
Qed.

Lemma rounded_up_ratio a b : (0 < b)%Z -> (inject_Z a / inject_Z b <= inject_Z (rounded_up a b))%Q.
Proof.
  intros b0. assert (0 < inject_Z b)%Q as B by (change 0%Q with (inject_Z 0); rewrite <- Zlt_Qlt; exact b0).
  apply Qle_shift_div_r; [exact B|]. rewrite <- inject_Z_mult, <- Zle_Qle. apply rounded_up_enough, b0.
Qed.

Lemma no_less p q : (p == q)%Q -> (p <= q)%Q.
Proof. intros ->. apply Qle_refl. Qed.

Theorem min_settle_is_timely d step S' e w : (1 < d)%Z -> (0 < step)%Z ->
  timely (inject_Z (min_settle d step S' e w)) (inject_Z S') (inject_Z e) (1 / inject_Z d) (inject_Z w) = true.
Proof.
  intros d1 s0. apply Qle_bool_iff. unfold min_settle.
  set (f := rounded_up (S' * (d + 1)) (d - 1)). set (c := rounded_up (2 * e * (d + 1)) d). set (v := rounded_up w d).
  pose proof (rounded_up_enough (f + c + v) step s0) as H. rewrite Zle_Qle, !inject_Z_plus in H.
  eapply Qle_trans; [|exact H]. unfold least_settle.
  assert (0 < inject_Z d)%Q as D by (change 0%Q with (inject_Z 0); rewrite <- Zlt_Qlt; lia).
  assert (0 < inject_Z d - 1)%Q as D1.
  { change 1%Q with (inject_Z 1). change 0%Q with (inject_Z 0). unfold Qminus. rewrite <- inject_Z_opp, <- inject_Z_plus, <- Zlt_Qlt. lia. }
  repeat apply Qplus_le_compat.
  - eapply Qle_trans; [|apply (rounded_up_ratio (S' * (d + 1)) (d - 1)); lia].
    apply no_less. rewrite inject_Z_mult, inject_Z_plus. unfold Z.sub. rewrite inject_Z_plus.
    change (inject_Z 1) with 1%Q. change (inject_Z (-(1))) with (-(1))%Q. field. split; lra.
  - eapply Qle_trans; [|apply (rounded_up_ratio (2 * e * (d + 1)) d); lia].
    apply no_less. rewrite !inject_Z_mult, inject_Z_plus. change (inject_Z 1) with 1%Q. change (inject_Z 2) with 2%Q.
    field. lra.
  - eapply Qle_trans; [|apply (rounded_up_ratio w d); lia]. apply no_less. field. lra.
Qed.
