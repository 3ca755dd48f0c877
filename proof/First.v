(* The proofs of Statement.v's claims about the first of a fleet, which has permits at once. *)
From Quotient Require Import Sum Lending.
From Coq Require Import Lqa Lia Qfield Qminmax.

Lemma count_app f l k : count f (l ++ k) = (count f l + count f k)%nat.
Proof. induction l as [|p l IH]; [reflexivity|]. simpl app. rewrite !count_cons, IH. lia. Qed.

(* Windows that start so late by a clock (share.History.opens) start after the instant n by all clocks. *)
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

Section First.
  Variables (y : registry).
  Notation x := (fleet y).
  Hypotheses (a : assumed x) (ti : timing x) (rg : registers y) (o : obeys_first y).

  Definition is_fresh (p : permit) (sent : Q) (R : view) : Prop :=
    sent <= at_ p /\ read x (who p) sent R /\ (R <= newest x (who p) (at_ p))%nat /\
    mono x (who p) (at_ p) - mono x (who p) sent < freshness x /\
    wall x (who p) (at_ p) - wall x (who p) sent < freshness x.

  (* What both rules say. *)
  Lemma both before p after : permits x = before ++ p :: after -> exists sent R,
    start x (win p) + guard x <= corrected x (who p) (at_ p) /\ is_fresh p sent R /\
    (count (of (who p) (win p)) (before ++ [p]) <= share x (newest x (who p) (at_ p)) (who p) (win p))%nat.
  Proof.
    intros H. destruct (o _ _ _ H) as [(A & sent & R & ok) | (sent & R & ok)]; exists sent, R.
    - pose proof (learned y rg (who p) _ _ (proj1 (lookback _ _ _ _ _ _ _ ok))) as le.
      split; [apply (guarded _ _ _ _ _ _ _ ok)|]. split; [apply (fresh _ _ _ _ _ _ _ ok)|].
      apply (bound _ _ _ _ _ _ _ ok).
      split; [apply (history _ _ _ _ _ _ _ ok); split; [exact le|apply Nat.le_refl]|].
      split; [split; [exact le|apply Nat.le_refl]|left; reflexivity].
    - split; [apply (f_guarded _ _ _ _ _ ok)|]. split; [apply (f_fresh _ _ _ _ _ ok)|].
      destruct (f_history _ _ _ _ _ ok) as [le all].
      apply (f_bound _ _ _ _ _ ok); [split; [exact le|apply Nat.le_refl]|left; reflexivity].
  Qed.

  (* As Sum.promise: one that has announced an end issues nothing from there on. *)
  Lemma ends_kept p v U : In p (permits x) -> ends x v (who p) = Some U -> ~ U <= start x (win p).
  Proof.
    intros I s. destruct (bound_itself x a _ _ _ s) as (c & early & later).
    apply in_split in I as (before & after & H). destruct (both _ _ _ H) as (sent & R & G & _).
    destruct (lengths x a) as (_ & _ & _ & ? & _). destruct (Qlt_le_dec c (at_ p)) as [C | C].
    - assert (start x (win p) < U); [|lra]. apply later; [rewrite H; apply in_elt|reflexivity|assumption].
    - pose proof (forward x a (who p) _ _ C). lra.
  Qed.

  Lemma counted_once (before : list permit) p : (0 < count (of (who p) (win p)) (before ++ [p]))%nat.
  Proof.
    rewrite count_app, count_cons. unfold of at 2, in_window. rewrite Nat.eqb_refl, Z.eqb_refl. simpl. lia.
  Qed.

  (* A proof is good for less than S'/(1-r) of true time. *)
  Lemma proof_ends p sent R : is_fresh p sent R -> at_ p < sent + lag_of x.
  Proof.
    intros (older & _ & _ & M & N). destruct (lengths x a) as (_ & _ & r1 & _).
    assert ((1 - drift x) * lag_of x == freshness x) as L by (unfold lag_of; field; lra).
    apply Qnot_le_lt. intros late.
    assert ((1 - drift x) * (sent + lag_of x) <= (1 - drift x) * at_ p) by (apply Qmult_le_l; lra).
    destruct (not_slow x a (who p) _ _ older); lra.
  Qed.

  (* So the newest revision committed by the instant of asking is known. *)
  Lemma known p sent R v : is_fresh p sent R -> commit x v < sent -> (v <= newest x (who p) (at_ p))%nat.
  Proof. intros (_ & rd & le & _) c. pose proof (linearizable x a _ _ _ v rd c). lia. Qed.

  (* Whoever has an instance's key has an issuer key too, and until S'/(1-r) after the revision
     that deletes the former. *)
  Lemma by_distance :
    (forall i v t, present y i v -> committed x v t -> t < commit x (v + 1) + lag_of x -> issuer_key y i t) ->
    issuing y.
  Proof.
    intros outlives p I. apply in_split in I as (before & after & H). destruct (both _ _ _ H) as (sent & R & _ & fr & some).
    pose proof (counted_once before p). set (v := newest x (who p) (at_ p)) in *.
    apply (outlives (who p) v).
    - apply (keyed y rg _ _ (win p)), (part_taken y rg). eapply Nat.lt_le_trans; eassumption.
    - apply causal, a.
    - apply Qnot_le_lt. intros late. pose proof (proof_ends _ _ _ fr).
      pose proof (known _ _ _ (v + 1)%nat fr ltac:(lra)). lia.
  Qed.

  Lemma not_before before p after : permits x = before ++ p :: after ->
    start x (win p) + guard x - clock_error x <= at_ p.
  Proof.
    intros H. destruct (both _ _ _ H) as (s1 & R1 & G & _). destruct (error x a (who p) (at_ p)). lra.
  Qed.

  Lemma fresh_after_B W p sent R B u : is_fresh p sent R -> win p = W ->
    start x (win p) + guard x <= corrected x (who p) (at_ p) ->
    B <= B_plus x W -> newest_at x u B -> (u <= newest x (who p) (at_ p))%nat.
  Proof.
    intros fr <- G b2 ([-> | C] & _); [lia|]. apply (known p sent R); [exact fr|].
    pose proof (proof_ends _ _ _ fr). destruct (lengths x a) as (_ & _ & _ & ? & _), (error x a (who p) (at_ p)).
    unfold B_plus in b2. fold (lag_of x) in b2. lra.
  Qed.

  Lemma run_ends W z u n p : run x W z u n -> win p = W -> at_ p <= z ->
    (u <= newest x (who p) (at_ p))%nat ->
    let k := Nat.min (newest x (who p) (at_ p)) n in
    (u <= k <= newest x (who p) (at_ p))%nat /\ (k <= n)%nat /\
    (k = newest x (who p) (at_ p) \/ gives x k W = false).
  Proof.
    intros (un & giving & stop) pw pz le k. subst k. repeat split; try lia.
    destruct (Nat.le_gt_cases (newest x (who p) (at_ p)) n) as [H1 | H1]; [left; lia|right].
    rewrite Nat.min_r by lia. destruct stop as [-> | late]; [reflexivity|].
    destruct (causal x a (who p) (at_ p)) as [H2 | C]; [lia|].
    pose proof (line x a (n + 1) (newest x (who p) (at_ p)) ltac:(lia)). lra.
  Qed.

  Lemma took_part W u k i : (u <= k)%nat -> (forall v, (u <= v < k)%nat -> gives x v W = true) ->
    takes y i k W -> takes y i u W.
  Proof.
    intros uk. induction uk as [|k uk IH]; intros giving T; [exact T|].
    apply IH; [intros v ?; apply giving; lia|]. apply (no_join y rg); [apply giving; lia|].
    rewrite Nat.add_1_r. exact T.
  Qed.

  Hypothesis iss : issuing y.

  Lemma outlived before p after : permits x = before ++ p :: after -> issuer_key y (who p) (at_ p).
  Proof. intros H. apply iss. rewrite H. apply in_elt. Qed.

  (* If a newcomer's window starts so soon that its registration is not known to all,
     nobody else issues permits of it. *)
  Lemma nobody_else W before q after sent R : permits x = before ++ q :: after -> win q = W ->
    first y before q sent R -> B_plus x W < commit x (registered y (who q)) ->
    forall before' p after', permits x = before' ++ p :: after' -> win p = W -> who p = who q.
  Proof.
    intros H qW ok late before' p after' H' pW.
    destruct (Nat.eq_dec (who p) (who q)) as [|other]; [assumption|exfalso].
    pose proof (f_alone _ _ _ _ _ ok (who p) other) as alone. pose proof (f_opens _ _ _ _ _ ok) as opens.
    pose proof (outlived _ _ _ H') as op. pose proof (outlived _ _ _ H) as oq.
    pose proof (not_before _ _ _ H') as np. pose proof (not_before _ _ _ H) as nq.
    rewrite qW in *. rewrite pW in *. set (c := commit x (registered y (who q))) in *.
    destruct (o _ _ _ H') as [(A & sent' & R' & nok) | (sent' & R' & fok)].
    - (* It obeys section 2: then it had a key at B+, before the registration. *)
      destruct (newest_exists x (B_plus x W) a) as (u & at_B), (all_over x W) as (z & over).
      destruct (run_exists x W z u a) as (n & run').
      assert (at_ p <= z) as pz by (apply over; [rewrite H'; apply in_elt|assumption]).
      destruct (both _ _ _ H') as (s2 & R2 & G2 & fr2 & _).
      pose proof (timing_leaves_an_instant x a ti W) as BB.
      pose proof (newest_after x a _ _ _ _ (B_plus x W) _ u _ nok ltac:(rewrite pW; apply Qle_refl) at_B) as uN.
      assert (held x p A (Nat.min (newest x (who p) (at_ p)) n)) as hv.
      { eapply (run_counts x a before' p A sent' (B_plus x W) R' u held nok); try rewrite pW; eauto. apply Qle_refl. }
      pose proof (bound _ _ _ _ _ _ _ nok _ hv) as some. pose proof (counted_once before' p).
      destruct run' as (un & giving & _).
      assert (takes y (who p) u W) as T.
      { apply (took_part W u (Nat.min (newest x (who p) (at_ p)) n)); [lia|intros v ?; apply giving; lia|].
        apply (part_taken y rg). rewrite <- pW. lia. }
      pose proof (not_sooner y rg _ _ (keyed y rg _ _ W T)) as sooner. destruct at_B as [[-> | C] _];
        [exfalso; exact (no_key y rg _ (keyed y rg _ _ W T))|].
      pose proof (line x a _ _ sooner) as early.
      apply alone. apply (key_once y rg (who p) (commit x (registered y (who p))) c (at_ p)); try assumption; [lra|lra|].
      apply (written_then y rg).
    - (* It is a newcomer too, and the later one of the two would have seen the other. *)
      pose proof (written_then y rg (who p)) as wp. pose proof (f_opens _ _ _ _ _ fok) as opens'.
      rewrite pW in opens'. set (d := commit x (registered y (who p))) in *.
      destruct (Qlt_le_dec c d) as [L | L].
      + apply (f_alone _ _ _ _ _ fok (who q)); [intros E; symmetry in E; contradiction|]. fold d.
        apply (key_once y rg (who q) c d (at_ q)); [lra|lra|apply (written_then y rg)|assumption].
      + apply alone. apply (key_once y rg (who p) d c (at_ p)); try assumption; lra.
  Qed.

  (* Either some newcomer is that early in W, or none is. *)
  Lemma early_or_not W : forall ps pre, permits x = pre ++ ps ->
    (exists before q after sent R, permits x = before ++ q :: after /\ win q = W /\
      first y before q sent R /\ B_plus x W < commit x (registered y (who q))) \/
    (forall mid p after, ps = mid ++ p :: after -> win p = W ->
      (exists A sent R, allowed held x (pre ++ mid) p A sent R) \/
      (exists sent R, first y (pre ++ mid) p sent R /\ commit x (registered y (who p)) <= B_plus x W)).
  Proof.
    induction ps as [|p ps IH]; intros pre H.
    - right. intros mid p after E. destruct mid; discriminate.
    - destruct (IH (pre ++ [p])) as [E | rest]; [rewrite <- app_assoc; exact H|left; exact E|].
      assert ((exists before q after sent R, permits x = before ++ q :: after /\ win q = W /\
        first y before q sent R /\ B_plus x W < commit x (registered y (who q))) \/
        (win p = W -> (exists A sent R, allowed held x pre p A sent R) \/
        (exists sent R, first y pre p sent R /\ commit x (registered y (who p)) <= B_plus x W))) as [E | here].
      { destruct (o _ _ _ H) as [N | (sent & R & F)]; [right; left; exact N|].
        destruct (Qlt_le_dec (B_plus x W) (commit x (registered y (who p)))) as [L | L].
        - destruct (Z.eq_dec (win p) W) as [E | E]; [left|right; contradiction].
          exists pre, p, ps, sent, R. auto.
        - right. right. exists sent, R. auto. }
      { left. exact E. }
      right. intros mid q after E qW. destruct mid as [|m mid].
      + injection E as -> ->. rewrite app_nil_r. apply here, qW.
      + injection E as -> ->. specialize (rest mid q after eq_refl qW). rewrite <- app_assoc in rest. exact rest.
  Qed.

  (* The sum is at most the total by one view of the run, or by the newest view of the one
     that is alone. *)
  Theorem first_windows_hold W : exists v, (issued x W <= total x v W)%nat.
  Proof.
    destruct (early_or_not W (permits x) [] eq_refl) as [(before & q & after & sent & R & H & qW & ok & late) | none].
    - (* All permits are of one. *)
      destruct (last_one (in_window W) (permits x)) as [Z | (b' & p & a' & H' & fp & same)].
      { exists 0%nat. unfold issued. rewrite Z. lia. }
      apply Z.eqb_eq in fp. exists (newest x (who p) (at_ p)). unfold issued. rewrite same.
      destruct (both _ _ _ H') as (s & R' & _ & _ & le). rewrite fp in le.
      pose proof (fit x a (newest x (who p) (at_ p)) W [who p] ltac:(repeat constructor; auto)) as F.
      unfold sum in F. simpl in F.
      assert (count (in_window W) (b' ++ [p]) <= count (of (who p) W) (b' ++ [p]))%nat.
      { assert (forall r, In r (b' ++ [p]) -> win r = W -> who r = who p) as E.
        { intros r I rW. assert (In r (permits x)) as J.
          { rewrite H'. apply in_app_or in I as [I | [<- | []]]; apply in_or_app; [left|right; left]; auto. }
          apply in_split in J as (b2 & a2 & J).
          rewrite (nobody_else W _ _ _ _ _ H qW ok late _ _ _ J rW).
          symmetry. apply (nobody_else W _ _ _ _ _ H qW ok late _ _ _ H' fp). }
        revert E. generalize (b' ++ [p]). intros l. induction l as [|r l IH]; intros E; [apply Nat.le_refl|].
        rewrite !count_cons. specialize (IH (fun s I => E s (or_intror I))). unfold of at 1.
        destruct (in_window W r) eqn:rW; [|rewrite andb_false_r; lia].
        rewrite (E r (or_introl eq_refl)) by (apply Z.eqb_eq; exact rW). rewrite Nat.eqb_refl. simpl. lia. }
      lia.
    - (* As section 4, with B = B+. *)
      destruct (newest_exists x (B_plus x W) a) as (u & at_B), (all_over x W) as (z & over).
      destruct (run_exists x W z u a) as (n & R). exists n.
      set (l := nodup Nat.eq_dec (map who (permits x))).
      eapply Nat.le_trans; [apply (count_by_incarnation W l)|].
      { intros p I. apply nodup_In, in_map, I. }
      eapply Nat.le_trans; [|apply (fit x a n W l), NoDup_nodup].
      apply sum_le. intros i _.
      destruct (last_one (of i W) (permits x)) as [-> | (before & p & after & H & fp & ->)]; [lia|].
      apply andb_prop in fp as [I J]. apply Nat.eqb_eq in I as <-. apply Z.eqb_eq in J as pW.
      assert (In p (permits x)) as inp by (rewrite H; apply in_elt).
      destruct (both _ _ _ H) as (s2 & R2 & G2 & fr2 & _).
      pose proof (fresh_after_B W p s2 R2 (B_plus x W) u fr2 pW G2 (Qle_refl _) at_B) as uN.
      destruct (run_ends W z u n p R pW (over _ inp pW) uN) as (range & kn & last).
      set (k := Nat.min (newest x (who p) (at_ p)) n) in *.
      assert (count (of (who p) W) (before ++ [p]) <= share x k (who p) W)%nat as le.
      { rewrite <- pW. destruct (none before p after H pW) as [(A & sent & Rv & ok) | (sent & Rv & ok & early)].
        - apply (bound _ _ _ _ _ _ _ ok). simpl in *.
          eapply (run_counts x a before p A sent (B_plus x W) Rv u held ok); try rewrite pW; eauto; [|apply Qle_refl].
          apply timing_leaves_an_instant; assumption.
        - simpl in ok. apply (f_bound _ _ _ _ _ ok); [|rewrite pW; exact last].
          assert (registered y (who p) <= u)%nat; [|lia].
          apply Nat.nlt_ge. intros L. destruct at_B as [_ D].
          pose proof (line x a (u + 1) (registered y (who p)) ltac:(lia)). lra. }
      eapply Nat.le_trans; [exact le|].
      destruct R as (un & giving & _).
      apply grows; [exact a| |exact kn|intros v ?; apply giving; lia].
      intros v U s. rewrite <- pW. eapply ends_kept; eassumption.
  Qed.

  Lemma first_holds W T : (forall v, total x v W <= T)%nat -> (issued x W <= T)%nat.
  Proof. intros small. destruct (first_windows_hold W) as (v & le). specialize (small v). lia. Qed.
End First.

Theorem issuing_by_distance : claim_by_distance.
Proof. intros y a rg o. apply by_distance; assumption. Qed.

Theorem first_never_over : claim_first_never_over.
Proof. intros y a ti rg o iss W T small. apply first_holds; assumption. Qed.
