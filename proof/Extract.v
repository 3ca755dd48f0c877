(* The definitions of the proof as a program, model.ml, with which the shipped code is
   compared (answers.ml, test/differential). Numbers of permits become machine
   integers, by the mappings below; Z and Q stay as Coq has them. *)
From Quotient Require Import Lending Views Judge Keys KeyBudget Marks Shapes.
From Coq Require Import Arith Qround.
From Coq Require Import Extraction ExtrOcamlBasic ExtrOcamlNatInt.

Extract Inlined Constant PeanoNat.Nat.leb => "(<=)".
Extract Inlined Constant PeanoNat.Nat.ltb => "(<)".
Extract Inlined Constant PeanoNat.Nat.min => "Stdlib.min".
Extract Constant PeanoNat.Nat.div => "fun n m -> if m = 0 then 0 else n / m".
Extract Constant PeanoNat.Nat.modulo => "fun n m -> if m = 0 then n else n mod m".

Extraction "model.ml" share_of gives_of bound_of min_settle takes_nothing amount window_bound earliest latest Qfloor
  may_take may_return out_after never_commits renewed told says_of hands_out_by owner_share
  leaves number counts_more unused ready take roll slots_that_count in_ring.
