(* What the rule of generations (Generations.v) gives a provider, by its own count (docs/proof/protocol.md,
   section 14). A generation here is a window of Statement.v: its number, by the clock of an instance.

   1. A window of m generations that begins at any instant counts at most the limit, if M is m + 1 and
      there is a guard. Without one M is m + 2.
   2. There are never more calls under way than the limit, if a call of label g ends before generation
      g + M begins.
   3. What an instance had that crashes counts for no other one that many generations later. *)
From Quotient Require Import Sum Arrivals.
From Quotient Require Generations.
From Coq Require Import Lqa Lia Qfield Qround.
Open Scope Q_scope.

Lemma holds x t : 0 < width x -> exists G, start x G <= t /\ t < start x (G + 1).
Proof.
  intros w0. exists (Qfloor (t / width x)).
  assert (width x * (t / width x) == t) as K by (field; lra).
  pose proof (Qfloor_le (t / width x)) as lo. pose proof (Qlt_floor (t / width x)) as hi.
  unfold start. set (f := inject_Z (Qfloor (t / width x))) in *. set (f' := inject_Z (Qfloor (t / width x) + 1)) in *.
  split; rewrite <- K, (Qmult_comm _ (width x)); [apply Qmult_le_l|apply Qmult_lt_l]; assumption.
Qed.
Lemma start_plus x G n : start x (G + Z.of_nat n) == start x G + inject_Z (Z.of_nat n) * width x.
Proof. unfold start. rewrite inject_Z_plus. ring. Qed.
Lemma starts_lt x G H : 0 < width x -> start x G < start x H -> (G < H)%Z.
Proof.
  intros w0 lt. destruct (Z.lt_ge_cases G H) as [L | ge]; [exact L|exfalso].
  assert (start x H <= start x G); [|lra]. unfold start. apply Qmult_le_compat_r; [rewrite <- Zle_Qle; exact ge|lra].
Qed.

(* Whatever is of n labels in a row, counted by label. *)
Lemma count_span f G n ps : (forall p, In p ps -> f p = true -> G <= win p < G + Z.of_nat n)%Z ->
  (count f ps <= Generations.span (fun l => count (in_window l) ps) G n)%nat.
Proof.
  intros near. eapply Nat.le_trans with (count (fun p => Z.leb G (win p) && Z.ltb (win p) (G + Z.of_nat n)) ps).
  - apply count_le_in. intros p I F. specialize (near p I F). apply andb_true_iff.
    split; [apply Z.leb_le|apply Z.ltb_lt]; lia.
  - clear near. revert G. induction n as [|n IH]; intros G; cbn [Generations.span].
    + clear. induction ps as [|p ps IH]; [apply Nat.le_0_l|]. rewrite count_cons.
      destruct (Z.leb_spec G (win p)), (Z.ltb_spec (win p) (G + Z.of_nat 0)); cbn [andb]; lia.
    + specialize (IH (G + 1)%Z). eapply Nat.le_trans; [|apply Nat.add_le_mono_l, IH]. clear.
      induction ps as [|p ps IH]; [apply Nat.le_0_l|]. rewrite !count_cons. unfold in_window at 1.
      destruct (Z.leb_spec G (win p)), (Z.ltb_spec (win p) (G + Z.of_nat (S n))), (Z.eqb_spec (win p) G),
        (Z.leb_spec (G + 1) (win p)), (Z.ltb_spec (win p) (G + 1 + Z.of_nat n)); cbn [andb]; lia.
Qed.

(* The permits that instances have issued, and the store's state, are of one run. *)
Definition issued_by_total (ps : list permit) (s : Generations.state) : Prop :=
  forall i l, (count (of i l) ps <= Generations.issued s i l)%nat.

Lemma labels_by_total M limits s ps T l n : Generations.reached M limits s -> issued_by_total ps s ->
  (forall q, (q <= Generations.policy s)%nat -> (limits q <= T)%nat) -> (n <= M)%nat ->
  (Generations.span (fun l => count (in_window l) ps) l n <= T)%nat.
Proof.
  intros R same small le. set (ids := nodup Nat.eq_dec (map who ps)).
  destruct (Generations.generations_never_over M limits s ids T R) as (each & row); [apply NoDup_nodup|exact small|].
  eapply Nat.le_trans; [|apply (row l)]. replace M with (n + (M - n))%nat by lia. rewrite Generations.span_split.
  eapply Nat.le_trans; [|apply Nat.le_add_r]. apply Generations.span_within. intros g _.
  eapply Nat.le_trans; [|apply (each g)]. unfold Generations.held.
  eapply Nat.le_trans; [apply (count_by_incarnation g ids); intros p I; apply nodup_In, in_map, I|].
  apply sum_le. intros i _. specialize (same i g). lia.
Qed.

(* 1. WINDOWS OF ANY PHASE *)

(* A span of n generations' length, both its ends included, meets at most n + 1 of them. *)
Lemma meets x a n : 0 < width x -> exists K, forall G,
  a < start x (G + 1) -> start x G <= a + inject_Z (Z.of_nat n) * width x -> (K <= G < K + Z.of_nat (n + 1))%Z.
Proof.
  intros w0. destruct (holds x a w0) as (K & Klo & Khi). exists K. intros G lo hi.
  pose proof (start_plus x (K + 1) n) as S. rewrite start_next in S.
  pose proof (starts_lt x K (G + 1) w0 ltac:(lra)). rewrite start_next in Khi.
  pose proof (starts_lt x G (K + 1 + Z.of_nat n) w0 ltac:(lra)). lia.
Qed.

(* The provider counts a permit's call from a to z, by its own clock. *)
Definition counted_from (y : provider) (a z : Q) (p : permit) : bool :=
  sends y p && (Qle_bool a (shows y (arrives y p)) && Qle_bool (shows y (arrives y p)) z).

(* For a reader of docs/guarantees.md. The limit is at most T. A generation is an m-th part of the
   provider's window. Permits of a label are issued in its generation, at least the guard away from its
   edges, by clocks that are off by at most e (clock_error); the provider's clock is off by at most E (off).
   A call leaves while its permit is valid for [margin] more, and arrives within [transit]. M = m + n + 1
   labels count, where 2e, 2E and the transit exceed guard and margin by n generations at most. Then the
   provider counts at most T calls in its window, wherever that begins, both its ends included.

   So n is 0 with a guard of e + E and a margin of that and the transit. Without both n is 1, if a generation
   is as long as 2e, 2E and the transit. A provider's clock that is off by a constant has E = 0 here, for its
   windows may begin at any instant. *)
Theorem any_phase_never_over x y m n limits s T : clocks_near x -> in_their_windows x -> counts_arrivals y x ->
  2 * clock_error x + 2 * off y + transit y <= guard x + margin y + inject_Z (Z.of_nat n) * width x ->
  Generations.reached (m + n + 1) limits s -> issued_by_total (permits x) s ->
  (forall q, (q <= Generations.policy s)%nat -> (limits q <= T)%nat) ->
  forall a, (count (counted_from y a (a + inject_Z (Z.of_nat m) * width x)) (permits x) <= T)%nat.
Proof.
  intros k w c near R same small a. pose proof (some_width x k) as w0.
  destruct (meets x (a - clock_error x - off y - transit y + margin y) (m + n) w0) as (K & all).
  eapply Nat.le_trans; [apply (count_span _ K (m + n + 1))|eapply labels_by_total; eauto].
  intros p I F. unfold counted_from in F. apply andb_prop in F as [sd F]. apply andb_prop in F as [F1 F2].
  apply Qle_bool_iff in F1, F2. destruct (arrives_near x y k w c p I sd) as [N N'].
  apply all; [lra|]. rewrite Nat2Z.inj_add, inject_Z_plus. lra.
Qed.

(* 2. CALLS IN FLIGHT *)

(* A call on a slot. It is under way from when it leaves until the provider sees its end. The instance's
   permit is the slot: who has it, and its label. *)
Record call := Call { slot : permit; leaves_at : Q; ends_by : Q }.
Definition under_way (t : Q) (c : call) : bool := Qle_bool (leaves_at c) t && negb (Qle_bool (ends_by c) t).
Definition open_slots (t : Q) (calls : list call) : list permit := map slot (filter (under_way t) calls).

(* A slot of label g has calls from when generation g begins until 2e before generation g + M does, both by
   its instance's clock. *)
Record keeps_to_label (x : world) (M : nat) (c : call) : Prop := {
  not_before : start x (win (slot c)) <= corrected x (who (slot c)) (leaves_at c);
  not_after : corrected x (who (slot c)) (ends_by c) <= start x (win (slot c) + Z.of_nat M) - 2 * clock_error x
}.

(* [store t] is the state at t: an instance counts a slot as one with a call at least while one is
   under way. That is so for ever if the instance has crashed. *)
Theorem in_flight_never_over x M limits store calls T : clocks_near x ->
  (forall t, Generations.reached M limits (store t)) -> (forall q, (limits q <= T)%nat) ->
  (forall c, In c calls -> keeps_to_label x M c) ->
  (forall t, issued_by_total (open_slots t calls) (store t)) ->
  forall t, (length (open_slots t calls) <= T)%nat.
Proof.
  intros [w0 e] R small keeps same t. destruct (holds x (t + clock_error x) w0) as (G & lo & hi).
  replace (length (open_slots t calls)) with (count (fun _ => true) (open_slots t calls)) by
    (unfold count; f_equal; induction (open_slots t calls) as [|p ps IH]; [reflexivity|simpl; f_equal; exact IH]).
  eapply Nat.le_trans; [apply (count_span _ (G + 1 - Z.of_nat M) M)|].
  - intros p I _. unfold open_slots in I. apply in_map_iff in I as (c & <- & I). apply filter_In in I as [I U].
    apply andb_prop in U as [U V]. apply negb_true_iff, not_true_iff_false in V. rewrite Qle_bool_iff in U, V.
    apply Qnot_le_lt in V. destruct (keeps c I) as [B A].
    destruct (e (who (slot c)) (leaves_at c)) as [_ E1], (e (who (slot c)) (ends_by c)) as [E2 _].
    pose proof (starts_lt x (win (slot c)) (G + 1) w0 ltac:(lra)).
    pose proof (starts_lt x G (win (slot c) + Z.of_nat M) w0 ltac:(lra)). lia.
  - apply (labels_by_total M limits (store t) _ T _ M (R t) (same t)); [intros; apply small|lia].
Qed.

(* Each instance begins its generations later by a time of its own. One had taken what it has of label g, or
   of earlier ones, when it crashed. For another one nothing of that counts any more from generation g + M on. With
   M = N + 2, where N generations are the longest time of a call, that is so N + 3 generations after the crash, by any
   clocks: with N = 8, 11 eighths. *)
Theorem places_are_back x N g i j later_i later_j crash t : clocks_near x ->
  0 <= later_i -> later_j + 2 * clock_error x <= width x ->
  start x g + later_i <= corrected x i crash -> crash + inject_Z (Z.of_nat (N + 3)) * width x <= t ->
  start x (g + Z.of_nat (N + 2)) + later_j <= corrected x j t.
Proof.
  intros [w0 e] i0 j0 taken after. rewrite start_plus.
  destruct (e i crash) as [_ E1], (e j t) as [E2 _].
  assert (inject_Z (Z.of_nat (N + 3)) == inject_Z (Z.of_nat (N + 2)) + 1) as S.
  { replace (N + 3)%nat with (S (N + 2)) by lia. rewrite Nat2Z.inj_succ. unfold Z.succ. rewrite inject_Z_plus. reflexivity. }
  rewrite S in after. lra.
Qed.
