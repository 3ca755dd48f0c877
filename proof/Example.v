(* The assumptions and the rule can be satisfied; and without its lookback the rule exceeds
   the total. So Statement.v's claims are not empty. *)
From Quotient Require Import Sum.
From Coq Require Import Lqa Lia Qround Qminmax.

Local Arguments Z.mul : simpl never.

(* Two instances and windows of 10. Revision v is committed at 100v. By view 1 instance 0
   has both permits, from view 2 on each has one, and from view 3 on each has two: that
   revision gives. Instance 0 learns of a revision `late` after its commit, instance 1 at
   once. Its corrected time is half a unit ahead. *)
Definition share_of (v i : nat) : nat :=
  match v, i with
  | 1, 0 => 2
  | 2, (0 | 1) => 1
  | S (S (S _)), (0 | 1) => 2
  | _, _ => 0
  end%nat.

Definition lag (late : Q) (i : nat) : Q := if Nat.eqb i 0 then late else 0.

Definition revision_at (t : Q) : nat := Z.to_nat (Qfloor (t / 100)).

Definition example (late : Q) (ps : list permit) : world := {|
  settle := 5; freshness := 3; clock_error := 1 # 2; drift := 1 # 1000; guard := 1; width := 10;
  commit v := inject_Z (100 * Z.of_nat v);
  share v i _ := share_of v i;
  total v _ := (share_of v 0 + share_of v 1)%nat;
  gives v _ := Nat.leb 2 v;
  ends _ _ := None;
  corrected i t := if Nat.eqb i 1 then t + (1 # 2) else t;
  mono _ t := t;
  wall _ t := t;
  newest i t := revision_at (t - lag late i);
  applied _ _ := True;
  read _ t v := v = revision_at t;
  permits := ps
|}.

Lemma revision_at_committed t : revision_at t = 0%nat \/
  inject_Z (100 * Z.of_nat (revision_at t)) <= t.
Proof.
  unfold revision_at. pose proof (Qfloor_le (t / 100)) as H. set (z := Qfloor (t / 100)) in *.
  destruct (Z_le_gt_dec z 0); [left; lia|right]. rewrite Z2Nat.id, inject_Z_mult by lia.
  assert (t / 100 * 100 == t) by field. change (inject_Z 100) with 100. lra.
Qed.

Definition only (j n i : nat) : nat := if Nat.eqb i j then n else 0%nat.

Lemma only_once j n l : NoDup l ->
  (sum (only j n) l <= n /\ (~ In j l -> sum (only j n) l = 0))%nat.
Proof.
  unfold sum, only. induction 1 as [|i l new _ [le none]]; simpl; [lia|].
  destruct (Nat.eqb_spec i j) as [-> |]; simpl;
    (split; [|intros H]); try rewrite none by tauto; try lia; tauto.
Qed.

Lemma shares_of_two v l : NoDup l -> (sum (share_of v) l <= share_of v 0 + share_of v 1)%nat.
Proof.
  intros nd. eapply Nat.le_trans.
  - apply (sum_le _ (fun i => only 0 (share_of v 0) i + only 1 (share_of v 1) i))%nat.
    intros i _. destruct i as [|[|i]], v as [|[|[|v]]]; unfold only; simpl; lia.
  - rewrite sum_add. pose proof (only_once 0 (share_of v 0) l nd).
    pose proof (only_once 1 (share_of v 1) l nd). lia.
Qed.

Lemma example_assumed late ps : 0 <= late -> assumed (example late ps).
Proof.
  intros late0. constructor; simpl; unfold committed; simpl.
  - repeat split; lra.
  - intros v v' le. rewrite <- Zle_Qle. lia.
  - intros t. exists (Z.to_nat (Qceiling (t / 100) + 1)). pose proof (Qle_ceiling (t / 100)).
    set (z := Qceiling (t / 100)) in *. assert (t / 100 * 100 == t) by field.
    apply Qlt_le_trans with (inject_Z (100 * (z + 1))); [|rewrite <- Zle_Qle; lia].
    rewrite inject_Z_mult, inject_Z_plus. change (inject_Z 100) with 100.
    change (inject_Z 1) with 1. lra.
  - intros _ p R v -> before. unfold revision_at. assert (p / 100 * 100 == p) by field.
    rewrite inject_Z_mult in before. change (inject_Z 100) with 100 in before.
    assert (inject_Z (Z.of_nat v) <= p / 100) as le by lra. apply Qfloor_resp_le in le.
    rewrite Qfloor_Z in le. lia.
  - intros i t. destruct (revision_at_committed (t - lag late i)) as [-> |]; [left; reflexivity|right].
    unfold lag in *. destruct (i =? 0); lra.
  - intros i t. destruct (i =? 1); split; lra.
  - intros i t t' le. destruct (i =? 1); lra.
  - intros i t t' le. lra.
  - intros i t t' le. left. lra.
  - intros v W l nd. apply shares_of_two, nd.
  - intros v W i giving. left. destruct v as [|[|v]]; try discriminate.
    destruct i as [|[|i]], v; simpl; lia.
  - discriminate.
Qed.

Lemma example_timing late ps : timing (example late ps).
Proof. unfold timing. simpl. unfold Qle. simpl. lia. Qed.

Definition permit_of i t W := Permit i t W None.

(* Instance 0 issues 2 permits in window 15. Window 20 begins with revision 2: in
   its lookback are views 1 and 2, so instance 0 issues 1, and 1 permit is unused. In
   window 30 both use at once what revision 3 gave: 4 permits. *)
Definition issued_by_all : list permit := [
  permit_of 0 155 15; permit_of 0 156 15; permit_of 0 205 20;
  permit_of 0 215 21; permit_of 1 215 21;
  permit_of 0 305 30; permit_of 0 305 30; permit_of 1 305 30; permit_of 1 305 30].

(* A view v between two that can be computed is one of a few. *)
Ltac each_view H :=
  match type of H with
  | (?lo <= ?v <= ?hi)%nat =>
      let l := eval vm_compute in lo in let h := eval vm_compute in hi in
      change (l <= v <= h)%nat in H;
      let rec go k := tryif assert (v = k) as -> by lia then idtac
        else (destruct (Nat.eq_dec v k) as [-> |]; [|go (S k)]) in go l
  end.
Ltac compare := unfold start, Qle, Qlt; vm_compute; first [discriminate | reflexivity].
(* The permit is allowed, with a lookback that begins 6 before its window, and a read that
   was sent 2 ago. *)
Ltac allow counted := match goal with
  |- exists A sent R, allowed _ _ _ (Permit _ ?t ?W _) A sent R =>
  exists (inject_Z W * 10 - 6), (t - 2), (revision_at (t - 2)); constructor;
  [ split; compare
  | split; compare
  | intros; exact I
  | split; [compare|]; split; [reflexivity|]; split; [vm_compute; lia|]; split; compare
  | intros v counts; counted v counts ] end.
Ltac last_of before H := repeat (destruct before as [|? before];
  [injection H as <- _ | injection H as <- H; simpl app]).

Theorem example_obeys : obeys (example 3 issued_by_all).
Proof.
  intros before p after H. simpl in H. unfold issued_by_all, permit_of in H.
  last_of before H; try (destruct before; discriminate).
  all: allow ltac:(fun v counts => destruct counts as (_ & range & last);
    each_view range; vm_compute in last |- *; destruct last; try discriminate; try lia).
Qed.

Theorem example_issued :
  map (issued (example 3 issued_by_all)) [15; 20; 21; 30]%Z = [2; 1; 2; 4]%nat.
Proof. reflexivity. Qed.

(* Without the lookback only the newest view counts. *)
Definition newest_only (x : world) (p : permit) (A : Q) (v : view) : Prop :=
  v = newest x (who p) (at_ p).

(* Instance 0 issues 2 permits of window 20 by view 1, and instance 1 another by view 2. *)
Definition issued_too_many : list permit :=
  [permit_of 0 201 20; permit_of 0 201 20; permit_of 1 205 20].

Theorem without_lookback_it_breaks : exists x W B u,
  assumed x /\ timing x /\ obeys_by newest_only x /\ B_minus x W <= B /\ B <= B_plus x W /\
  newest_at x u B /\ gives x u W = false /\ total x u W = 2%nat /\ issued x W = 3%nat.
Proof.
  exists (example 2 issued_too_many), 20%Z, 196, 1%nat.
  split; [apply example_assumed; lra|]. split; [apply example_timing|].
  split; [|repeat split; try (right; compare); compare].
  intros before p after H. simpl in H. unfold issued_too_many, permit_of in H.
  last_of before H; try (destruct before; discriminate).
  all: allow ltac:(fun v counts => rewrite counts; vm_compute; lia).
Qed.
