(* A process that continues the incarnation of one that has ended (docs/protocol.md, section 12): in
   no window is more issued than the largest total, with loans too.

   Here [who] is a process, and [name] its incarnation: shares are those of incarnations. Clocks and
   knowledge are of processes. What a process knows begins at a position (m, R) of the one before:
   [position_is_known] says that it is then as [assumed] wants it, before the process itself has begun. *)
From Quotient Require Import Sum Lending.
From Coq Require Import Lqa Lia.
Open Scope Q_scope.

(* The world in which only some processes have a share. *)
Definition counting (l : list incarnation) (x : world) : world :=
  World (settle x) (freshness x) (clock_error x) (drift x) (guard x) (width x) (commit x)
    (fun v i W => if existsb (Nat.eqb i) l then share x v i W else 0%nat)
    (total x) (gives x) (ends x) (corrected x) (mono x) (wall x) (newest x) (applied x) (read x) (permits x).

(* The process j begins, at the instant [began], when the kernel has released the lock of i; and it
   issues only in windows that start 2e + (2e + w)r after that by its clock (share.History.opens). *)
Record follows (x : world) (began : incarnation -> Q) (i j : incarnation) : Prop := {
  has_ended : forall p, In p (permits x) -> who p = i -> at_ p <= began j;
  opens : forall p, In p (permits x) -> who p = j -> began j <= at_ p /\
    mono x j (began j) + 2 * clock_error x + (2 * clock_error x + width x) * drift x <=
      mono x j (at_ p) - (corrected x j (at_ p) - start x (win p))
}.

Record continues (x : world) (name : incarnation -> nat) (began : incarnation -> Q) : Prop := {
  (* If of each incarnation one process is counted, all is as Statement.v assumes. *)
  one_each : forall l, NoDup (map name l) -> assumed (counting l x);
  (* Of two processes of an incarnation, one follows the other. *)
  in_turn : forall i j, i <> j -> name i = name j -> follows x began i j \/ follows x began j i
}.

(* Windows that start so late by a clock start after that by all clocks. *)
Lemma opens_late x j n t f : assumed x -> 0 < drift x -> n <= t -> f < width x ->
  mono x j n + 2 * clock_error x + (2 * clock_error x + width x) * drift x <= mono x j t - f ->
  n + clock_error x < corrected x j t - f.
Proof.
  intros a r0 le fw op. destruct (lengths x a) as (e0 & _ & r1 & _ & w0), (error x a j t) as [E _].
  pose proof (not_fast x a j _ _ le) as N. apply Qnot_le_lt. intros early.
  assert (t <= n + 2 * clock_error x + f) as T by lra.
  assert ((1 + drift x) * (t - n) <= (1 + drift x) * (2 * clock_error x + f)) by (apply Qmult_le_l; lra).
  assert (drift x * f < drift x * width x) by (apply Qmult_lt_l; lra). lra.
Qed.

Section Continued.
  Variables (x : world) (name : incarnation -> nat) (began : incarnation -> Q).
  Hypotheses (c : continues x name began) (r0 : 0 < drift x).

  Let a0 : assumed (counting [] x) := one_each _ _ _ c [] (NoDup_nil _).

  (* When a permit is issued, its window has begun by the process's clock, and has not ended. *)
  Definition in_its_window (p : permit) : Prop :=
    start x (win p) <= corrected x (who p) (at_ p) /\ corrected x (who p) (at_ p) < start x (win p + 1).

  Lemma not_both i j p q : follows x began i j -> In p (permits x) -> In q (permits x) ->
    who p = i -> who q = j -> win p = win q -> in_its_window p -> in_its_window q -> False.
  Proof.
    intros f P Q pi qj same (p0 & _) (_ & q1).
    pose proof (has_ended _ _ _ _ f p P pi) as last. destruct (opens _ _ _ _ f q Q qj) as (le & op).
    destruct (error _ a0 i (at_ p)) as [_ E]. cbn in E. rewrite start_next in q1. rewrite pi in p0. rewrite qj in q1.
    pose proof (opens_late (counting [] x) j (began j) (at_ q) (corrected x j (at_ q) - start x (win q)) a0) as late.
    cbn in late. rewrite same in p0. specialize (late r0 le ltac:(lra) op). lra.
  Qed.

  (* So all permits of a window and an incarnation are of one process. *)
  Lemma one_process p q : In p (permits x) -> In q (permits x) -> in_its_window p -> in_its_window q ->
    name (who p) = name (who q) -> win p = win q -> who p = who q.
  Proof.
    intros P Q wp wq same W. destruct (Nat.eq_dec (who p) (who q)) as [|D]; [assumption|exfalso].
    destruct (in_turn _ _ _ c _ _ D same) as [f | f].
    - exact (not_both _ _ p q f P Q eq_refl eq_refl W wp wq).
    - exact (not_both _ _ q p f Q P eq_refl eq_refl (eq_sym W) wq wp).
  Qed.

  (* The processes that have issued permits of W. *)
  Definition issuers (W : window) : list incarnation := nodup Nat.eq_dec (map who (filter (in_window W) (permits x))).

  Lemma is_issuer p : In p (permits x) -> existsb (Nat.eqb (who p)) (issuers (win p)) = true.
  Proof.
    intros I. apply existsb_exists. exists (who p). split; [|apply Nat.eqb_refl].
    apply nodup_In, in_map, filter_In. split; [exact I|apply Z.eqb_refl].
  Qed.

  Lemma issuers_differ W : (forall p, In p (permits x) -> in_its_window p) -> NoDup (map name (issuers W)).
  Proof.
    intros all. assert (forall i, In i (issuers W) -> exists p, In p (permits x) /\ win p = W /\ who p = i) as has.
    { intros i I. apply nodup_In, in_map_iff in I as (p & <- & I). apply filter_In in I as (I & E).
      apply Z.eqb_eq in E. exists p. auto. }
    assert (NoDup (issuers W)) as nd by apply NoDup_nodup. revert has nd. generalize (issuers W).
    induction l as [|i l IH]; intros has nd; simpl; constructor; inversion_clear nd as [|? ? new nd'].
    - intros I. apply in_map_iff in I as (j & same & J).
      destruct (has i (or_introl eq_refl)) as (p & P & pW & pi), (has j (or_intror J)) as (q & Q & qW & qj).
      apply new. rewrite <- pi. rewrite (one_process p q) by (auto; congruence). rewrite qj. exact J.
    - apply IH; [intros j J; apply has; right; exact J|exact nd'].
  Qed.
End Continued.

(* The permits of W alone, with the share of those that have issued them. *)
Definition of_window (W : window) (x : world) : world :=
  World (settle x) (freshness x) (clock_error x) (drift x) (guard x) (width x) (commit x) (share x) (total x) (gives x)
    (ends x) (corrected x) (mono x) (wall x) (newest x) (applied x) (read x) (filter (in_window W) (permits x)).

Lemma of_window_assumed W x : assumed x -> assumed (of_window W x).
Proof.
  intros [? ? ? ? ? ? ? ? ? ? ? b]. constructor; auto. intros v i U s. destruct (b v i U s) as (t & early & later).
  exists t. split; [exact early|]. intros p I. apply later. apply filter_In in I as [I _]. exact I.
Qed.

Lemma count_filter f g ps : (forall p, f p = true -> g p = true) -> count f (filter g ps) = count f ps.
Proof.
  intros all. induction ps as [|p ps IH]; [reflexivity|]. simpl. rewrite count_cons, <- IH.
  destruct (g p) eqn:G; [rewrite count_cons; reflexivity|].
  destruct (f p) eqn:F; [rewrite (all p F) in G; discriminate|reflexivity].
Qed.

Lemma filter_split {A} (f : A -> bool) ps : forall before p after, filter f ps = before ++ p :: after ->
  exists b' a', ps = b' ++ p :: a' /\ before = filter f b' /\ f p = true.
Proof.
  induction ps as [|q ps IH]; intros before p after H; [destruct before; discriminate|]. simpl in H.
  destruct (f q) eqn:F.
  - destruct before as [|b before].
    + injection H as -> _. exists [], ps. auto.
    + injection H as -> H. destruct (IH _ _ _ H) as (b' & a' & -> & -> & G). exists (b :: b'), a'. simpl. rewrite F. auto.
  - destruct (IH _ _ _ H) as (b' & a' & -> & -> & G). exists (q :: b'), a'. simpl. rewrite F. auto.
Qed.

Theorem continued_never_over x name began : continues x name began -> 0 < drift x -> timing x -> obeys x ->
  forall W T, (forall v, total x v W <= T)%nat -> (issued x W <= T)%nat.
Proof.
  intros c r0 ti o W T small.
  assert (forall p, In p (permits x) -> in_its_window x p) as all.
  { intros p I. apply in_split in I as (before & after & H). destruct (o _ _ _ H) as (A & sent & R & ok).
    destruct (guarded _ _ _ _ _ _ _ ok) as [G G'], (lengths _ (one_each _ _ _ c [] (NoDup_nil _))) as (_ & _ & _ & g0 & _).
    cbn in g0. split; lra. }
  set (l := issuers x W). pose proof (one_each _ _ _ c l (issuers_differ x name began c r0 W all)) as a.
  assert (issued x W = issued (of_window W (counting l x)) W) as -> by (symmetry; apply count_filter; auto).
  apply never_over; [apply of_window_assumed, a|exact ti| |exact small].
  intros before p after H. cbn in H. apply filter_split in H as (b & a' & H & -> & pW). apply Z.eqb_eq in pW as <-.
  destruct (o _ _ _ H) as (A & sent & R & ok). exists A, sent, R. constructor.
  - exact (guarded _ _ _ _ _ _ _ ok).
  - exact (lookback _ _ _ _ _ _ _ ok).
  - exact (history _ _ _ _ _ _ _ ok).
  - exact (fresh _ _ _ _ _ _ _ ok).
  - intros v hv. cbn. subst l. rewrite is_issuer by (rewrite H; apply in_elt).
    replace (filter (in_window (win p)) b ++ [p]) with (filter (in_window (win p)) (b ++ [p])).
    + rewrite count_filter; [exact (bound _ _ _ _ _ _ _ ok v hv)|].
      intros q F. apply andb_prop in F as [_ F]. exact F.
    + rewrite filter_app. simpl. unfold in_window at 2. rewrite Z.eqb_refl. reflexivity.
Qed.

(* With loans. A guest counts a number only while its windows run by its clock, and windows that it may
   issue of itself: so permits that are lent are of such windows too. *)
Definition handing (y : lending) : world :=
  let x := among y in
  World (settle x) (freshness x) (clock_error x) (drift x) (guard x) (width x) (commit x) (share x) (total x) (gives x)
    (ends x) (corrected x) (mono x) (wall x) (newest x) (applied x) (read x) (handed y).

Definition lending_of_window (W : window) (l : list incarnation) (y : lending) : lending :=
  Lending (of_window W (counting l (handing y))) (filter (in_window W) (handed y))
    (fun h j V k s n => V = W /\ tells y h j V k s n) (fun h j V k t => if Z.eqb V W then heard y h j V k t else 0%nat).

Lemma filter_comm {A} (f g : A -> bool) l : filter f (filter g l) = filter g (filter f l).
Proof.
  induction l as [|a l IH]; [reflexivity|]. simpl.
  destruct (f a) eqn:F, (g a) eqn:G; simpl; rewrite ?F, ?G, IH; reflexivity.
Qed.

Theorem continued_lending_never_over y name began : continues (handing y) name began -> 0 < drift (among y) ->
  timing (among y) -> (forall p, In p (handed y) -> in_its_window (among y) p) ->
  charged y -> as_told y -> spends_as_heard y ->
  forall W T, (forall v, total (among y) v W <= T)%nat -> (used y W <= T)%nat.
Proof.
  intros c r0 ti all ch told o W T small.
  set (l := issuers (handing y) W). pose proof (one_each _ _ _ c l (issuers_differ (handing y) name began c r0 W all)) as a.
  assert (used y W = used (lending_of_window W l y) W) as ->.
  { symmetry. apply count_filter. intros p F. apply andb_prop in F as [F _]. exact F. }
  apply lending_never_over; [apply of_window_assumed, a|exact ti| | | |exact small].
  - intros h j V k s n (-> & t). specialize (ch _ _ _ _ _ _ t). unfold by_ in *.
    change (n <= count (lent h j W k) (filter (fun p => Qle_bool (at_ p) s) (filter (in_window W) (handed y))))%nat.
    rewrite filter_comm, count_filter; [exact ch|].
    intros p F. apply andb_prop in F as [F _]. apply andb_prop in F as [_ F]. exact F.
  - intros h j V k t. cbn. destruct (Z.eqb_spec V W) as [-> | _]; [|left; reflexivity].
    destruct (told h j W k t) as [Z | (s & n & st & tl & le)]; [left; exact Z|right]. exists s, n. auto.
  - intros before p after H. cbn in H. apply filter_split in H as (b & a' & H & -> & pW). apply Z.eqb_eq in pW as <-.
    assert (count (of (who p) (win p)) (filter (in_window (win p)) b ++ [p]) = count (of (who p) (win p)) (b ++ [p])) as same.
    { replace (filter (in_window (win p)) b ++ [p]) with (filter (in_window (win p)) (b ++ [p])).
      - apply count_filter. intros q F. apply andb_prop in F as [_ F]. exact F.
      - rewrite filter_app. simpl. unfold in_window at 2. rewrite Z.eqb_refl. reflexivity. }
    destruct (o _ _ _ H) as (hs & ks & nh & nk & rule). exists hs, ks. split; [exact nh|]. split; [exact nk|].
    cbv zeta in *. cbn. rewrite Z.eqb_refl, same.
    destruct rule as [only | (A & sent & R & ok & free & bound)]; [left; exact only|right].
    exists A, sent, R. split; [|split; [exact free|]].
    + constructor; [exact (guarded _ _ _ _ _ _ _ ok)|exact (lookback _ _ _ _ _ _ _ ok)|
        exact (history _ _ _ _ _ _ _ ok)|exact (fresh _ _ _ _ _ _ _ ok)|intros v []].
    + intros v hv. subst l. rewrite (is_issuer (handing y)) by (cbn; rewrite H; apply in_elt).
      exact (bound v hv).
Qed.

(* The position (m, R) of the process before: its watch had delivered R by m. So R was committed by
   then, as [causal] wants it of a process whose newest view is R from m on. *)
Theorem position_is_known x i m R t : assumed x -> (R <= newest x i m)%nat -> m <= t -> committed x R t.
Proof.
  intros a le mt. destruct R as [|R]; [left; reflexivity|right].
  destruct (causal x a i m) as [Z | C]; [lia|]. pose proof (line x a _ _ le). lra.
Qed.
