(* The bound of a window as a number: the smallest T*(u, W) over the views u that were the newest
   at some time in [B-, B+]. internal/trace judges runs by it, and is compared with this. *)
From Quotient Require Import Sum Views.
From Coq Require Import Lqa Lia Qminmax.
Open Scope nat_scope.

(* A revision takes permits of a window from nobody, but from those that have ended. *)
Definition takes_nothing (begins : Z) (rank : nat -> Z) (u v : shown) : bool :=
  forallb (fun m => match share_of begins rank u (ident m), share_of begins rank v (ident m) with
    | _, None => true
    | None, Some _ => false
    | Some n, Some n' => n <=? n'
    end || existsb (fun n => (ident n =? ident m) && ended begins n) (members v)) (members u).

Theorem takes_nothing_is_taking begins rank u v i : takes_nothing begins rank u v = true ->
  at_most (share_of begins rank u i) (share_of begins rank v i) \/
  exists n, In n (members v) /\ ident n = i /\ (until n <= begins)%Z.
Proof.
  intros H. unfold takes_nothing in H. rewrite forallb_forall in H.
  destruct (find_claim i (claims begins rank u)) as [c|] eqn:F.
  - apply find_some in F as [J E]. apply Nat.eqb_eq in E. apply in_map_iff in J as (m & <- & J).
    apply filter_In in J as [J _]. simpl in E. specialize (H m J). rewrite E in H.
    apply orb_prop in H as [H | H].
    + left. destruct (share_of begins rank u i), (share_of begins rank v i); simpl; try exact I; try discriminate.
      apply Nat.leb_le, H.
    + right. apply existsb_exists in H as (n & K & G). apply andb_prop in G as [G L].
      exists n. split; [exact K|]. split; [apply Nat.eqb_eq, G|apply Z.leb_le, L].
  - left. unfold share_of at 1. rewrite F. destruct (share_of begins rank v i); simpl; [lia|exact I].
Qed.

(* A view: when it was committed, its total, and whether the next revision gives. *)
Definition row : Type := Q * nat * bool.
Definition committed_at (r : row) : Q := fst (fst r).
Definition later_than (t : Q) (r : row) : bool := negb (Qle_bool (committed_at r) t).

(* The total at the end of the run of a view; later are those after it. Views that were committed
   after z are no part of it. *)
Fixpoint star (z : Q) (r : row) (later : list row) : nat :=
  match later with
  | next :: later => if snd r && Qle_bool (committed_at next) z then star z next later else snd (fst r)
  | [] => snd (fst r)
  end.

(* The smallest of the views that were newest at some time from lo to hi; None if there is none. *)
Fixpoint window_bound (lo hi z : Q) (views : list row) : option nat :=
  match views with
  | [] => None
  | r :: later =>
    let ends_after := match later with next :: _ => later_than lo next && later_than (committed_at r) next | [] => true end in
    let rest := window_bound lo hi z later in
    if Qle_bool (committed_at r) hi && ends_after then least (Some (star z r later)) rest else rest
  end.

(* The views of a world, from v on. View 0 is as old as one likes. *)
Definition row_time (x : world) (lo : Q) (v : view) : Q := if v =? 0 then Qmin lo (commit x 1) else commit x v.
Definition rows (x : world) (W : window) (lo : Q) (v n : nat) : list row :=
  map (fun v => (row_time x lo v, total x v W, gives x v W)) (seq v n).

Arguments row_time : simpl never.
Lemma row_time_later x lo v : row_time x lo (v + 1) = commit x (v + 1).
Proof. unfold row_time. replace (v + 1 =? 0) with false; [reflexivity|]. symmetry. apply Nat.eqb_neq. lia. Qed.

Lemma Qle_bool_false p q : Qle_bool p q = false -> (q < p)%Q.
Proof. intros H. apply Qnot_le_lt. intros le. apply Qle_bool_iff in le. congruence. Qed.

Lemma star_is_run x W lo z n : forall v, (z < commit x (v + n + 1))%Q -> exists e,
  run x W z v e /\ star z (hd (0%Q, 0, false) (rows x W lo v 1)) (rows x W lo (v + 1) n) = total x e W.
Proof.
  induction n as [|n IH]; intros v late.
  - exists v. split; [|reflexivity]. split; [lia|]. split; [intros; lia|right]. rewrite Nat.add_0_r in late. exact late.
  - destruct (gives x v W) eqn:G; [|exists v; split; [split; [lia|split; [intros; lia|left; exact G]]|simpl; rewrite G; reflexivity]].
    destruct (Qle_bool (commit x (v + 1)) z) eqn:L.
    + destruct (IH (v + 1)) as (e & (le & giving & stop) & st).
      { replace (v + 1 + n + 1) with (v + S n + 1) by lia. exact late. }
      exists e. split.
      * split; [lia|]. split; [|exact stop]. intros k ?. destruct (Nat.eq_dec k v) as [-> |]; [exact G|apply giving; lia].
      * rewrite <- st. replace (S n) with (1 + n) by lia. unfold rows. rewrite seq_app, map_app. simpl seq. simpl map.
        simpl. unfold committed_at at 1. simpl fst. rewrite row_time_later, G, L. reflexivity.
    + exists v. split.
      * split; [lia|]. split; [intros; lia|right; apply Qle_bool_false, L].
      * simpl. unfold committed_at at 1. simpl fst. rewrite row_time_later, G, L. reflexivity.
Qed.

(* The bound that is computed is one that holds, if the views go on until nothing matters. *)
Theorem window_bound_holds x W z n : assumed x -> timing x -> obeys x -> over_by x W z ->
  (B_plus x W < commit x n)%Q -> (z < commit x n)%Q -> 0 < n ->
  within (issued x W) (window_bound (B_minus x W) (B_plus x W) z (rows x W (B_minus x W) 0 n)).
Proof.
  intros a ti o over late1 late2 some. pose proof (timing_leaves_an_instant x a ti W) as BB.
  enough (forall k v, v + k = n -> within (issued x W) (window_bound (B_minus x W) (B_plus x W) z (rows x W (B_minus x W) v k))) as H
    by (apply H; lia).
  induction k as [|k IH]; intros v E; [exact I|].
  specialize (IH (v + 1) ltac:(lia)). replace (S k) with (1 + k) by lia. unfold rows in *. rewrite seq_app, map_app.
  simpl seq. simpl map. simpl app. simpl window_bound.
  set (later := map _ (seq (v + 1) k)) in *. set (mine := row_time x (B_minus x W) v).
  unfold committed_at at 1. simpl fst. fold mine.
  match goal with |- within _ (if ?test then _ else _) => destruct test eqn:C end; [|exact IH].
  assert (within (issued x W) (Some (star z (mine, total x v W, gives x v W) later))) as own.
  { destruct (star_is_run x W (B_minus x W) z k v) as (e & R & st).
    { replace (v + k + 1) with n by lia. exact late2. }
    assert (star z (mine, total x v W, gives x v W) later = total x e W) as -> by exact st.
    apply andb_prop in C as [C D]. apply Qle_bool_iff in C.
    assert (B_minus x W < commit x (v + 1))%Q as before.
    { unfold later in D. destruct k as [|k]; simpl in D.
      - replace (v + 1) with n by lia. lra.
      - unfold later_than, committed_at in D. simpl in D.
        rewrite row_time_later in D. apply andb_prop in D as [D _].
        destruct (Qle_bool (commit x (v + 1)) (B_minus x W)) eqn:L; [discriminate|]. apply Qle_bool_false, L. }
    simpl. destruct (Nat.eq_dec v 0) as [Z | Z].
    - subst v. apply (sum_holds x a o W (B_minus x W) 0 z e); auto; [apply Qle_refl|].
      split; [left; reflexivity|exact before].
    - apply Nat.eqb_neq in Z. assert (mine = commit x v) as M by (unfold mine, row_time; rewrite Z; reflexivity).
      rewrite M in C, D.
      assert (commit x v < commit x (v + 1))%Q as next.
      { unfold later in D. destruct k as [|k]; simpl in D.
        - replace (v + 1) with n by lia. lra.
        - unfold later_than, committed_at in D. simpl in D.
          rewrite row_time_later in D. apply andb_prop in D as [_ D].
          destruct (Qle_bool (commit x (v + 1)) (commit x v)) eqn:L; [discriminate|]. apply Qle_bool_false, L. }
      apply (sum_holds x a o W (Qmax (B_minus x W) (commit x v)) v z e); auto.
      + apply Q.le_max_l.
      + apply Q.max_lub; assumption.
      + split; [right; apply Q.le_max_r|]. apply Q.max_lub_lt; assumption. }
  assert (within (issued x W) (window_bound (B_minus x W) (B_plus x W) z later)) as rest by exact IH.
  unfold least. destruct (window_bound (B_minus x W) (B_plus x W) z later); [|exact own].
  apply Nat.min_glb; [exact own|exact rest].
Qed.

(* B- and B+ of a window that begins at b. *)
Definition earliest (b S e r w : Q) : Q := (b + e - (S - w * r) / (1 + r))%Q.
Definition latest (b S' e r : Q) : Q := (b - e - S' / (1 - r))%Q.
Lemma earliest_is x W : earliest (start x W) (settle x) (clock_error x) (drift x) (width x) = B_minus x W.
Proof. reflexivity. Qed.
Lemma latest_is x W : latest (start x W) (freshness x) (clock_error x) (drift x) = B_plus x W.
Proof. reflexivity. Qed.
