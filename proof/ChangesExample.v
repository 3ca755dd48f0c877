(* What Changes.v assumes can be satisfied, by a world in which S and S' are lowered. *)
From Quotient Require Import Sum Example Hold Changes.
From Coq Require Import Lqa Lia Qround Qminmax.

(* As Example.v, but revision 2 lowers S from 5 to 4.5, and S' from 3 to 2.5. *)
Definition lowered : changing := {|
  plain := example 3 issued_by_all;
  settle_by v := if Nat.leb v 1 then 5 else 9 # 2;
  fresh_by v := if Nat.leb v 1 then 3 else 5 # 2;
  error_by _ := 1 # 2;
  guard_by _ := 1;
  limits _ _ := true
|}.

Theorem lowered_well : well_changed lowered.
Proof.
  constructor; simpl.
  - apply example_assumed. lra.
  - intros _. lra.
  - intros v. destruct (v <=? 1)%nat; lra.
  - intros _. lra.
  - intros v. unfold suffices. simpl. destruct (v <=? 1)%nat; unfold Qle; simpl; lia.
  - intros u v _ _. unfold suffices. simpl. destruct (v <=? 1)%nat, (u <=? 1)%nat; unfold Qle; simpl; lia.
  - intros i t t' le. simpl. unfold revision_at.
    enough (Qfloor ((t - lag 3 i) / 100) <= Qfloor ((t' - lag 3 i) / 100))%Z by lia.
    apply Qfloor_resp_le. apply Qmult_le_compat_r; [lra|]. unfold Qle. simpl. lia.
  - auto.
Qed.

Theorem lowered_obeys : obeys_changing lowered.
Proof.
  intros before p after H. simpl in H. unfold issued_by_all, permit_of in H.
  last_of before H; try (destruct before; discriminate).
  all: exists 5, (5 # 2), 1; match goal with |- exists A sent R, allowed _ _ _ (Permit _ ?t ?W _) A sent R /\ _ =>
    exists (inject_Z W * 10 - 6), (t - 2), (revision_at (t - 2)) end; split;
    [constructor;
      [ split; compare
      | split; compare
      | intros; exact I
      | split; [compare|]; split; [reflexivity|]; split; [vm_compute; lia|]; split; compare
      | intros v counts; destruct counts as ((_ & range & last) & _);
        each_view range; vm_compute in last |- *; destruct last; try discriminate; try lia ]
    | split; [intros v _; simpl; destruct (v <=? 1)%nat; lra|split; compare]].
Qed.
