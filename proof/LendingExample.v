(* The rules of lending can be satisfied by permits that are lent on. Each is needed: without
   it the total is exceeded. *)
From Quotient Require Import Sum Example Lending.
From Coq Require Import Lqa Lia.

(* Windows, views and shares are those of Example.v: by view 2, the newest from 200 on,
   instances 0 and 1 have a permit each, and instance 2 has none. Of window 21 instance 0
   lends its permit to 1 at 212, which hears of it at 213. Instance 1 lends it on to 2 at 214,
   which hears of it at 215. [said] are the numbers heard. *)
Definition chain (ps : list permit) (said : nat -> nat -> Z -> nat -> Q -> nat) : lending := {|
  among := example 3 [];
  handed := ps;
  tells h j W k s n := n = 1%nat /\ W = 21%Z /\ k = 0%nat /\
    (h = 0%nat /\ j = 1%nat /\ 212 <= s \/ h = 1%nat /\ j = 2%nat /\ 214 <= s);
  heard := said
|}.
Definition to (guest : nat) : option (nat * nat) := Some (guest, 0%nat).
Definition hear (h j : nat) (W : Z) (k : nat) (t : Q) : nat :=
  match h, j, k with
  | 0, 1, 0 => if Z.eqb W 21 && Qle_bool 213 t then 1 else 0
  | 1, 2, 0 => if Z.eqb W 21 && Qle_bool 215 t then 1 else 0
  | _, _, _ => 0
  end%nat.

(* Instance 1 uses its own permit, and instance 2 the one that is lent on. *)
Definition lent_on : list permit :=
  [Permit 0 212 21 (to 1); Permit 1 214 21 (to 2); Permit 1 215 21 None; Permit 2 216 21 None].

Lemma by_has t p ps : at_ p <= t -> by_ t (p :: ps) = p :: by_ t ps.
Proof. intros le. simpl. apply Qle_bool_iff in le. rewrite le. reflexivity. Qed.

Lemma lent_on_charged more said : charged (chain (lent_on ++ more) said).
Proof.
  intros h j W k s n (-> & -> & -> & [(-> & -> & le) | (-> & -> & le)]); unfold lent_on; simpl handed.
  - rewrite by_has by (simpl; lra). rewrite count_cons. simpl. lia.
  - rewrite by_has, by_has by (simpl; lra). rewrite 2 count_cons. simpl. lia.
Qed.

Lemma hear_as_told ps : as_told (chain ps hear).
Proof.
  intros h j W k t. simpl. unfold hear.
  destruct h as [|[|h]], j as [|[|[|j]]], k as [|k]; auto;
    destruct (Z.eqb_spec W 21) as [-> |]; simpl; auto.
  - destruct (Qle_bool 213 t) eqn:E; auto. apply Qle_bool_iff in E. right. exists 213, 1%nat.
    repeat split; auto. left. repeat split; auto. lra.
  - destruct (Qle_bool 215 t) eqn:E; auto. apply Qle_bool_iff in E. right. exists 215, 1%nat.
    repeat split; auto. right. repeat split; auto. lra.
Qed.

(* What it has heard is enough; or it is with its share. *)
Ltac by_loans h := exists [h], [0%nat]; split; [repeat constructor; auto|]; split; [repeat constructor; auto|];
  left; vm_compute; lia.
Ltac by_share h := exists [h], [0%nat]; split; [repeat constructor; auto|]; split; [repeat constructor; auto|];
  right; match goal with
  |- exists A sent R, allowed _ _ _ (Permit _ ?t ?W _) A sent R /\ _ =>
  exists (inject_Z W * 10 - 6), (t - 2), (revision_at (t - 2)); split; [constructor;
    [ split; compare
    | split; compare
    | intros; exact I
    | split; [compare|]; split; [reflexivity|]; split; [vm_compute; lia|]; split; compare
    | intros v none; destruct none ]
  | split; [discriminate|]; intros v counts; destruct counts as (_ & range & last);
    each_view range; vm_compute in last |- *; destruct last; try discriminate; try lia ] end.

Theorem lent_on_spends : spends_as_heard (chain lent_on hear).
Proof.
  intros before p after H. simpl in H. unfold lent_on, to in H.
  last_of before H; try (destruct before; discriminate).
  - by_share 1%nat.
  - by_loans 0%nat.
  - by_share 0%nat.
  - by_loans 1%nat.
Qed.

Lemma lent_on_used : used (chain lent_on hear) 21 = 2%nat.
Proof. reflexivity. Qed.

(* More is used of a window than its total, though two of the three rules hold. *)
Definition over (y : lending) : Prop := exists W B u z n,
  assumed (among y) /\ timing (among y) /\ B_minus (among y) W <= B /\ B <= B_plus (among y) W /\
  newest_at (among y) u B /\ (forall p, In p (handed y) -> win p = W -> at_ p <= z) /\
  run (among y) W z u n /\ (total (among y) n W < used y W)%nat.

Lemma chain_over ps said : (forall p, In p ps -> at_ p <= 219) -> used (chain ps said) 21 = 3%nat ->
  over (chain ps said).
Proof.
  intros early three. exists 21%Z, 206, 2%nat, 219, 2%nat. simpl among.
  split; [apply example_assumed; lra|]. split; [apply example_timing|].
  split; [compare|]. split; [compare|]. split; [split; [right; compare|compare]|].
  split; [intros p I _; apply early, I|]. split; [|rewrite three; vm_compute; lia].
  split; [lia|]. split; [intros; lia|]. right. compare.
Qed.

Ltac none_later := intros p I; simpl in I;
  repeat (destruct I as [<- | I]; [simpl; lra|]); destruct I.

(* Not charged: instance 1 uses the permit too that it has lent on. *)
Definition uncharged : list permit :=
  [Permit 0 212 21 (to 1); Permit 1 214 21 None; Permit 1 215 21 None; Permit 2 216 21 None].
Theorem without_charge_it_breaks : exists y, as_told y /\ spends_as_heard y /\ over y.
Proof.
  exists (chain uncharged hear). split; [apply hear_as_told|]. split.
  - intros before p after H. simpl in H. unfold uncharged, to in H.
    last_of before H; try (destruct before; discriminate).
    + by_share 1%nat.
    + by_loans 0%nat.
    + by_share 0%nat.
    + by_loans 1%nat.
  - apply chain_over; [none_later|reflexivity].
Qed.

(* Not as told: a number counts twice. *)
Definition one_more : list permit := lent_on ++ [Permit 2 217 21 None].
Theorem not_as_told_it_breaks : exists y, charged y /\ spends_as_heard y /\ over y.
Proof.
  exists (chain one_more (fun h j W k t => 2 * hear h j W k t)%nat).
  split; [apply lent_on_charged|]. split.
  - intros before p after H. simpl in H. unfold to in H.
    last_of before H; try (destruct before; discriminate).
    + by_share 1%nat.
    + by_loans 0%nat.
    + by_loans 0%nat.
    + by_loans 1%nat.
    + by_loans 1%nat.
  - apply chain_over; [none_later|reflexivity].
Qed.

(* More is spent than was heard. *)
Theorem overspent_it_breaks : exists y, charged y /\ as_told y /\ over y.
Proof.
  exists (chain one_more hear). split; [apply lent_on_charged|]. split; [apply hear_as_told|].
  apply chain_over; [none_later|reflexivity].
Qed.
