(* First.v's assumptions can be satisfied by a newcomer that uses its exception: instance 0
   registers by revision 1, at 100, and issues both permits of window 10, [100, 110), at
   once. *)
From Quotient Require Import Sum Example First.
From Coq Require Import Lqa Lia Qround.

Definition newcomers : list permit := [permit_of 0 105 10; permit_of 0 106 10].
Definition arrival (i : nat) : nat := match i with 0 => 1 | 1 => 2 | _ => 9 end%nat.

Definition alone_at_first : registry := {|
  fleet := example 2 newcomers;
  takes i v _ := (0 < share_of v i)%nat;
  present i v := (0 < share_of v i)%nat;
  issuer_key i t := inject_Z (100 * Z.of_nat (arrival i)) <= t;
  registered := arrival
|}.

Lemma later_revision t t' : t <= t' -> (revision_at t <= revision_at t')%nat.
Proof.
  intros le. unfold revision_at. assert (Qfloor (t / 100) <= Qfloor (t' / 100))%Z.
  { apply Qfloor_resp_le. apply Qmult_le_compat_r; [assumption|compare]. }
  lia.
Qed.

Lemma registers_ok : registers alone_at_first.
Proof.
  constructor; simpl.
  - auto.
  - auto.
  - intros i v _ G. destruct v as [|[|v]]; try discriminate. destruct i as [|[|i]], v; simpl; lia.
  - intros i t t' le. apply later_revision. lra.
  - intros i. destruct i as [|[|i]]; simpl; lia.
  - intros i v. destruct i as [|[|i]], v as [|[|[|v]]]; simpl; lia.
  - intros i. apply Qle_refl.
  - intros i s t z st tz a b. lra.
Qed.

Lemma issuing_ok : issuing alone_at_first.
Proof. intros p [<- | [<- | []]]; simpl; compare. Qed.

Lemma obeys_ok : obeys_first alone_at_first.
Proof.
  intros before p after H. right. simpl in H. unfold newcomers, permit_of in H.
  last_of before H; try (destruct before; discriminate).
  all: match goal with |- exists sent R, first _ _ (Permit _ ?t _ _) sent R => exists (t - 2), (revision_at (t - 2)) end;
    constructor; simpl;
    [ split; compare
    | split; [compare|]; split; [reflexivity|]; split; [vm_compute; lia|]; split; compare
    | split; [vm_compute; lia|intros; exact I]
    | intros h other; destruct h as [|[|h]]; [congruence| |]; simpl; intros Q; revert Q; unfold Qle; vm_compute; intros Q; apply Q; reflexivity
    | compare
    | intros v range last; each_view range; vm_compute; lia ].
Qed.

(* Its window begins before all can know of it: the rule of section 2 would not do. *)
Lemma early : B_plus (fleet alone_at_first) 10 < commit (fleet alone_at_first) 1.
Proof. unfold B_plus, start. simpl. compare. Qed.

Lemma both_are_issued : issued (fleet alone_at_first) 10 = 2%nat.
Proof. reflexivity. Qed.
