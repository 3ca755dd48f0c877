(* Changes of S, S', e, g and of the window lengths (docs/proof/protocol.md, section 4). Here each view
   has its own, as each policy has. [changes_never_over] says that the sum is at most the largest
   total, whatever is changed, if policies obey [timing] and settle times are lowered as
   coordinator/admin/lowering.go allows it. [length_holds] has it with the views of [B-, B+], where S and
   S' are constant and limits of a length come and go.

   The error of clocks in [plain] is the real one. A policy's e is at least that, by assumption; so
   e may change. Not covered: a change of e together with one of the real error. *)
From Quotient Require Import Sum Views Hold.
From Coq Require Import Lqa Lia Qfield Qminmax.
Open Scope Q_scope.

Record changing := Changing {
  plain : world; (* its settle, freshness and guard have no meaning *)
  settle_by : view -> Q; (* S of a view's policy *)
  fresh_by : view -> Q; (* S' *)
  error_by : view -> Q; (* e *)
  guard_by : view -> Q; (* g *)
  limits : view -> window -> bool (* the view limits windows of this length *)
}.

(* A world with other S, S' and g. *)
Definition with_times (x : world) (S F g : Q) : world :=
  World S F (clock_error x) (drift x) g (width x) (commit x) (share x) (total x) (gives x) (ends x)
    (corrected x) (mono x) (wall x) (newest x) (applied x) (read x) (permits x).

(* A settle time suffices for a freshness and an error: the timing rule. *)
Definition suffices (y : changing) (S F e : Q) : Prop :=
  S >= F * (1 + drift (plain y)) / (1 - drift (plain y)) + 2 * e * (1 + drift (plain y)) + width (plain y) * drift (plain y).

Record well_changed (y : changing) : Prop := {
  c_assumed : assumed (plain y);
  real_error : forall v, clock_error (plain y) <= error_by y v;
  fresh_not_negative : forall v, 0 <= fresh_by y v;
  guards : forall v, 0 <= guard_by y v;
  (* Each policy obeys the timing rule; one that does not gives no share. *)
  c_timing : forall v, suffices y (settle_by y v) (fresh_by y v) (error_by y v);
  (* A settle time is not lowered under a freshness in force until S ago: the key of the replaced
     policy (coordinator.superseded) is there for at least its S', after its view has been replaced. *)
  lowering : forall u v, (u < v)%nat ->
    commit (plain y) v < commit (plain y) (u + 1) + fresh_by y u / (1 - drift (plain y)) ->
    suffices y (settle_by y v) (fresh_by y u) (clock_error (plain y));
  c_remembers : remembers (plain y);
  (* A revision gives for W only if both views limit it. *)
  gives_limited : forall v W, gives (plain y) v W = true -> limits y v W = true /\ limits y (v + 1) W = true
}.

(* Views without a limit of W do not count. *)
Definition held_limited (lim : view -> window -> bool) (x : world) (p : permit) (A : Q) (v : view) : Prop :=
  held x p A v /\ lim v (win p) = true.

(* The rule of section 2: the lookback begins S before the window by the largest S of its views.
   The proof is younger than S', by the newest view's or less. The guard is the newest view's or
   more. *)
Definition obeys_changing (y : changing) : Prop := forall before p after,
  permits (plain y) = before ++ p :: after ->
  exists S F g A sent R, allowed (held_limited (limits y)) (with_times (plain y) S F g) before p A sent R /\
    (forall v, (newest (plain y) (who p) A <= v <= newest (plain y) (who p) (at_ p))%nat -> settle_by y v <= S) /\
    F <= fresh_by y (newest (plain y) (who p) (at_ p)) /\
    guard_by y (newest (plain y) (who p) (at_ p)) <= g.

Lemma with_times_assumed x S F g : assumed x -> 0 <= g -> assumed (with_times x S F g).
Proof. intros [(? & ? & ? & ? & ?) ? ? ? ? ? ? ? ? ? ? ?] g0. constructor; cbn; auto. Qed.

(* If S suffices for S', a lookback by the one begins before a proof by the other is sent. *)
Lemma suffices_orders x S F g e W : assumed x -> 0 <= g -> clock_error x <= e ->
  S >= F * (1 + drift x) / (1 - drift x) + 2 * e * (1 + drift x) + width x * drift x ->
  B_minus (with_times x S F g) W <= B_plus (with_times x S F g) W.
Proof.
  intros a g0 le s. apply timing_leaves_an_instant; [apply with_times_assumed; assumption|].
  unfold timing. cbn. destruct (lengths x a) as (_ & r0 & _). nra.
Qed.

Section Changed.
  Variable y : changing.
  Hypothesis c : well_changed y.
  Notation x := (plain y).
  Let a : assumed x := c_assumed y c.

  (* What a permit of the window W rests on. *)
  Record rests (W : window) (before : list permit) (p : permit) (S F g A sent : Q) (R : view) : Prop := {
    in_W : win p = W;
    g_positive : 0 <= g;
    may : allowed (held_limited (limits y)) (with_times x S F g) before p A sent R;
    largest : forall v, (newest x (who p) A <= v <= newest x (who p) (at_ p))%nat -> settle_by y v <= S;
    by_newest : F <= fresh_by y (newest x (who p) (at_ p))
  }.

  Lemma permits_rest before p after : obeys_changing y -> permits x = before ++ p :: after ->
    exists S F g A sent R, rests (win p) before p S F g A sent R.
  Proof.
    intros o H. destruct (o _ _ _ H) as (S & F & g & A & sent & R & ok & large & small & gd).
    exists S, F, g, A, sent, R. constructor; auto. pose proof (guards y c (newest x (who p) (at_ p))). lra.
  Qed.

  Lemma A_early W before p S F g A sent R : rests W before p S F g A sent R ->
    A <= B_minus (with_times x S F g) W.
  Proof.
    intros [<- g0 ok _ _].
    exact (lookback_reaches _ (with_times_assumed x S F g a g0) _ _ _ _ _ _ _ ok (Qle_refl _)).
  Qed.

  Lemma sent_late W before p S F g A sent R : rests W before p S F g A sent R ->
    B_plus (with_times x S F g) W < sent.
  Proof.
    intros [<- g0 ok _ _].
    exact (proof_is_later _ (with_times_assumed x S F g a g0) _ _ _ _ _ _ _ ok (Qle_refl _)).
  Qed.

  Lemma known_at W before p S F g A sent R v : rests W before p S F g A sent R ->
    (newest x (who p) (at_ p) < v)%nat -> sent <= commit x v.
  Proof.
    intros [_ _ ok _ _] lt. apply Qnot_lt_le. intros early.
    destruct (fresh _ _ _ _ _ _ _ ok) as (_ & rd & delivered & _). cbn in rd, delivered.
    pose proof (linearizable x a _ _ _ v rd early). lia.
  Qed.

  (* Whoever issues permits of one window: the view with which one's lookback begins is no newer
     than the one that another goes by. So one view is in all lookbacks. *)
  Lemma one_sees_the_other W b1 p1 S1 F1 g1 A1 sent1 R1 b2 p2 S2 F2 g2 A2 sent2 R2 :
    rests W b1 p1 S1 F1 g1 A1 sent1 R1 -> rests W b2 p2 S2 F2 g2 A2 sent2 R2 ->
    (newest x (who p1) A1 <= newest x (who p2) (at_ p2))%nat.
  Proof.
    intros r1 r2. apply Nat.nlt_ge. intros lt.
    set (n1 := newest x (who p1) A1) in *. set (n2 := newest x (who p2) (at_ p2)) in *.
    assert (commit x n1 <= A1) as C1 by (destruct (causal x a (who p1) A1) as [Z | C]; [unfold n1 in lt; lia|exact C]).
    pose proof (line x a (n2 + 1) n1 ltac:(lia)) as L.
    pose proof (known_at _ _ _ _ _ _ _ _ _ (n2 + 1)%nat r2 ltac:(unfold n2; lia)) as K.
    pose proof (A_early _ _ _ _ _ _ _ _ _ r1) as E. pose proof (sent_late _ _ _ _ _ _ _ _ _ r2) as P.
    pose proof (by_newest _ _ _ _ _ _ _ _ _ r2) as small. fold n2 in small.
    destruct (lookback _ _ _ _ _ _ _ (may _ _ _ _ _ _ _ _ _ r1)) as [older _].
    pose proof (c_remembers y c (who p1) _ _ older) as in_.
    pose proof (largest _ _ _ _ _ _ _ _ _ r1 n1 ltac:(fold n1 in in_ |- *; lia)) as large.
    destruct (lengths x a) as (e0 & r0 & r1' & _ & w0).
    assert (B_minus (with_times x (settle_by y n1) (fresh_by y n2) 0) W <=
      B_plus (with_times x (settle_by y n1) (fresh_by y n2) 0) W -> False) as no.
    { intros BB. unfold B_minus, B_plus, start in *. cbn in *.
      assert ((settle_by y n1 - width x * drift x) / (1 + drift x) <= (S1 - width x * drift x) / (1 + drift x)).
      { apply Qmult_le_compat_r; [lra|]. apply Qlt_le_weak, Qinv_lt_0_compat. lra. }
      assert (F2 / (1 - drift x) <= fresh_by y n2 / (1 - drift x)).
      { apply Qmult_le_compat_r; [exact small|]. apply Qlt_le_weak, Qinv_lt_0_compat. lra. }
      lra. }
    apply no. destruct (Qlt_le_dec (commit x n1) (commit x (n2 + 1) + fresh_by y n2 / (1 - drift x))) as [near | far].
    + apply (suffices_orders x _ _ 0 (clock_error x)); [exact a|lra|lra|]. exact (lowering y c n2 n1 lt near).
    + exfalso. pose proof (c_timing y c n1) as T. pose proof (suffices_orders x (settle_by y n1) (fresh_by y n1) 0 _ W a (Qle_refl 0) (real_error y c n1) T) as BB.
      unfold B_minus, B_plus, start in *. cbn in *.
      assert ((settle_by y n1 - width x * drift x) / (1 + drift x) <= (S1 - width x * drift x) / (1 + drift x)).
      { apply Qmult_le_compat_r; [lra|]. apply Qlt_le_weak, Qinv_lt_0_compat. lra. }
      assert (F2 / (1 - drift x) <= fresh_by y n2 / (1 - drift x)).
      { apply Qmult_le_compat_r; [exact small|]. apply Qlt_le_weak, Qinv_lt_0_compat. lra. }
      assert (0 <= fresh_by y n1 / (1 - drift x)) by (apply Qle_shift_div_l; [lra|]; pose proof (fresh_not_negative y c n1); lra).
      lra.
  Qed.

  (* A view that is in all lookbacks. *)
  Lemma one_view W l1 : obeys_changing y -> forall l2, permits x = l1 ++ l2 ->
    exists u, (forall before p mid, l1 = before ++ p :: mid -> win p = W ->
        exists S F g A sent R, rests W before p S F g A sent R /\ (newest x (who p) A <= u)%nat) /\
      forall before p S F g A sent R, rests W before p S F g A sent R -> (u <= newest x (who p) (at_ p))%nat.
  Proof.
    intros o. induction l1 as [|q l1 IH] using rev_ind; intros l2 H.
    - exists 0%nat. split; [|intros; lia]. intros before p mid E. destruct before; discriminate.
    - rewrite <- app_assoc in H. destruct (IH _ H) as (u & all & low).
      assert (forall u', (u <= u')%nat -> (win q = W -> exists S F g A sent R, rests W l1 q S F g A sent R /\ (newest x (who q) A <= u')%nat) ->
        forall before p mid, l1 ++ [q] = before ++ p :: mid -> win p = W ->
          exists S F g A sent R, rests W before p S F g A sent R /\ (newest x (who p) A <= u')%nat) as both.
      { intros u' le this before p mid E J. destruct mid as [|m mid _] using rev_ind.
        - apply app_inj_tail in E as (-> & ->). exact (this J).
        - rewrite app_comm_cons, app_assoc in E. apply app_inj_tail in E as (E & _).
          destruct (all _ _ _ E J) as (S & F & g & A & sent & R & r & n). exists S, F, g, A, sent, R. split; [exact r|lia]. }
      destruct (Z.eq_dec (win q) W) as [J | J].
      + destruct (permits_rest _ _ _ o H) as (S & F & g & A & sent & R & r). rewrite J in r.
        exists (Nat.max u (newest x (who q) A)). split.
        * apply both; [lia|]. intros _. exists S, F, g, A, sent, R. split; [exact r|lia].
        * intros before p S' F' g' A' sent' R' r'. pose proof (low _ _ _ _ _ _ _ _ r').
          pose proof (one_sees_the_other _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ r r'). lia.
      + exists u. split; [|exact low]. apply both; [lia|]. intros K. contradiction.
  Qed.

  (* If that view limits W, the sum is at most the total at the end of its run. *)
  Theorem changed_sum W T : obeys_changing y -> (forall v, limits y v W = true) ->
    (forall v, total x v W <= T)%nat -> (issued x W <= T)%nat.
  Proof.
    intros o lim small. destruct (one_view W (permits x) o [] (eq_sym (app_nil_r _))) as (u & all & low).
    destruct (all_over x W) as (z & over), (run_exists x W z u a) as (n & Rn).
    pose proof (sandwiched x W u z n [] (fun _ => 0%nat) a (NoDup_nil _) over Rn) as H.
    apply Nat.le_trans with (total x n W + sum (fun _ => 0%nat) (@nil nat))%nat;
      [|specialize (small n); unfold sum; simpl; lia].
    apply H. clear H. intros before p after H J.
    destruct (all _ _ _ H J) as (S & F & g & A & sent & R & r & le). pose proof (low _ _ _ _ _ _ _ _ r) as ge.
    destruct r as [_ g0 ok _ _]. split.
    - destruct (guarded _ _ _ _ _ _ _ ok) as [G _]. cbn in G. rewrite <- J. unfold start in *. cbn in G. lra.
    - right. exists A. split; [lia|]. split; [exact (history _ _ _ _ _ _ _ ok)|].
      intros v hv _. rewrite <- J. apply (bound _ _ _ _ _ _ _ ok v). split; [exact hv|]. rewrite J. apply lim.
  Qed.

  (* By true time too, if each policy's guard is at least the clocks' error. *)
  Theorem changed_true_windows : obeys_changing y -> (forall v, clock_error x <= guard_by y v) ->
    forall p, In p (permits x) -> start x (win p) <= at_ p /\ at_ p < start x (win p + 1).
  Proof.
    intros o eg p I. apply in_split in I as (before & after & H).
    destruct (o _ _ _ H) as (S & F & g & A & sent & R & ok & _ & _ & gd), (error x a (who p) (at_ p)) as [E E'].
    destruct (guarded _ _ _ _ _ _ _ ok) as [G1 G2]. unfold start in *. cbn in G1, G2.
    pose proof (eg (newest x (who p) (at_ p))). split; lra.
  Qed.
End Changed.

(* Limits of a length that come and go, with constant times. *)
Theorem length_holds x lim : assumed x ->
  (forall v W, gives x v W = true -> lim v W = true /\ lim (v + 1)%nat W = true) ->
  obeys_by (held_limited lim) x ->
  forall W B u z n, B_minus x W <= B -> B <= B_plus x W -> newest_at x u B -> lim u W = true ->
    over_by x W z -> run x W z u n -> (issued x W <= total x n W)%nat.
Proof.
  intros a gl o W B u z n low high at_B lu over Rn.
  apply Nat.le_trans with (total x n W + sum (fun _ => 0%nat) (@nil nat))%nat; [|unfold sum; simpl; lia].
  apply (sandwiched x W u z n [] (fun _ => 0%nat) a (NoDup_nil _) over Rn).
  intros before p after H <-. destruct (o _ _ _ H) as (A & sent & R & ok). split.
  - destruct (guarded _ _ _ _ _ _ _ ok) as [G _], (lengths x a) as (_ & _ & _ & ? & _). lra.
  - right. exists A. split; [split|split].
    + exact (newest_before _ a _ _ _ _ _ _ _ _ ok low at_B).
    + exact (newest_after _ a _ _ _ _ _ _ _ _ ok high at_B).
    + exact (history _ _ _ _ _ _ _ ok).
    + intros v hv range. apply (bound _ _ _ _ _ _ _ ok v). split; [exact hv|].
      destruct (Nat.eq_dec v u) as [-> |]; [exact lu|]. destruct Rn as (_ & giving & _).
      destruct (gl (v - 1)%nat (win p)) as [_ L]; [apply giving; lia|]. replace (v - 1 + 1)%nat with v in L by lia. exact L.
Qed.

Theorem changes_never_over y : well_changed y -> obeys_changing y ->
  forall W T, (forall v, limits y v W = true) -> (forall v, total (plain y) v W <= T)%nat ->
  (issued (plain y) W <= T)%nat.
Proof. intros c o W T. apply (changed_sum y c W T o). Qed.

(* Changes of limits and of the division are changes of views: shares may be any function of the
   view (Statement.v). So if shares and revisions that give are computed from what views show, the
   sum is at most the largest limit, whatever limit and owners each policy has. *)
Theorem divisions_never_over x shows begins rank written : computed x shows begins rank written ->
  ((forall u W l, NoDup l -> (sum (fun i => share x u i W) l <= total x u W)%nat) ->
   (forall v W i, gives x v W = true -> (share x v i W <= share x (v + 1) i W)%nat \/
     exists U, ends x (v + 1) i = Some U /\ U <= start x W) ->
   assumed x) ->
  timing x -> obeys x -> forall W T, (forall v, total x v W <= T)%nat -> (issued x W <= T)%nat.
Proof.
  intros c rest ti. apply never_over; [|exact ti].
  apply rest; [exact (computed_fits _ _ _ _ _ c)|exact (computed_takes _ _ _ _ _ c)].
Qed.
