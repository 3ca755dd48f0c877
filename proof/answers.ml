(* Answers questions about the definitions of the proof: model.ml has these (Extract.v). A
   question is a line of numbers, after a letter; lists begin with their length.
   test/differential writes them. *)
open Model

let rec positive n =
  if n = 1 then XH else if n land 1 = 1 then XI (positive (n lsr 1)) else XO (positive (n lsr 1))

let z n = if n = 0 then Z0 else if n > 0 then Zpos (positive n) else Zneg (positive (-n))
let q n = { qnum = z n; qden = XH }

let int =
  let rec of_positive = function XH -> 1 | XO p -> 2 * of_positive p | XI p -> 2 * of_positive p + 1 in
  function Z0 -> 0 | Zpos p -> of_positive p | Zneg p -> -of_positive p

(* The numbers of the line that is read. *)
let rest = ref []

let next () =
  match !rest with
  | [] -> failwith "the line is too short"
  | word :: more ->
    rest := more;
    int_of_string word

let flag () = next () <> 0
let option () = match next () with -1 -> None | n -> Some n
let list item = List.init (next ()) (fun _ -> item ())

(* An unsigned number of 64 bits is two of 32. *)
let unsigned () =
  let high = next () in
  let low = next () in
  Z.add (Z.mul (z high) (z (1 lsl 32))) (z low)

let policy () =
  let limit = option () in
  let in_force = flag () in
  let supported = flag () in
  let paused = flag () in
  let times = list next in
  { limit; in_force; supported; paused; times; owners = next () }

let member () =
  let ident = next () in
  let from = z (next ()) in
  { ident; from; until = z (next ()) }

let text = function None -> "free" | Some n -> string_of_int n

let view () =
  let terms = policy () in
  { terms; members = list member }

(* The shares of all by each view, and the bound of one of them. *)
let bound () =
  let begins = z (next ()) in
  let ranks = Array.of_list (list unsigned) in
  let self = next () in
  let written () = let w = flag () in (w, view ()) in
  let views = list written in
  let share v i = share_of begins (Array.get ranks) v i in
  let shares (_, v) =
    if v.terms.limit = None then "none"
    else String.concat "," (List.map (fun m -> text (share v m.ident)) v.members)
  in
  let rec held = function
    | [ (_, v) ] -> ([], share v self)
    | (_, u) :: ((written, v) :: _ as later) ->
      let older, newest = held later in
      ((share u self, gives_of begins written u v) :: older, newest)
    | [] -> failwith "no view"
  in
  let older, newest = held views in
  String.concat " " (List.map shares views @ [ text (bound_of older newest) ])

(* The bound of a window by views with the instants of their commits. The judge ends a run
   where S changes. *)
let bound_by begins ranks lo hi last =
  let dated () = let at = q (next ()) in (at, view ()) in
  let rec rows = function
    | [] -> []
    | (at, u) :: later ->
      let gives =
        match later with
        | (_, v) :: _ ->
          List.hd u.terms.times = List.hd v.terms.times && takes_nothing begins (Array.get ranks) u v
        | [] -> false
      in
      let total = match amount u.terms with Some n -> n | None -> failwith "a view without a limit" in
      ((at, total), gives) :: rows later
  in
  text (window_bound lo hi last (rows (list dated)))

(* It is asked for at least and at most, which are the same where the instants are known. *)
let judge () =
  let begins = z (next ()) in
  let ranks = Array.of_list (list unsigned) in
  let lo = q (next ()) in
  let hi = q (next ()) in
  let last = q (next ()) in
  let n = bound_by begins ranks lo hi last in
  n ^ " " ^ n

(* The same of a window of a run, with B- and B+. *)
let window () =
  let begins = next () in
  let ranks = Array.of_list (list unsigned) in
  let s = q (next ()) in
  let s' = q (next ()) in
  let e = q (next ()) in
  let r = { qnum = z 1; qden = positive (next ()) } in
  let w = q (next ()) in
  let last = q (next ()) in
  let lo = earliest (q begins) s e r w in
  let hi = latest (q begins) s' e r in
  let n = bound_by (z begins) ranks lo hi last in
  Printf.sprintf "%d %d %s" (int (qfloor lo)) (int (qfloor hi)) n

(* Of a long limit: whether an instance may send a take, or a give-back before which it lowers
   what it has, and the total that this makes; whether it may count on a refusal; and what it has then. *)
let purse () =
  let one legal = if legal then "1" else "0" in
  let rec after had = function
    | 0 -> []
    | n ->
      let said, had =
        match next () with
        | 0 ->
          let limit = next () in
          let seen = next () in
          let permits = next () in
          (Printf.sprintf "%s,%d," (one (may_take limit seen permits))
             (out_after { of1 = 0; way_of = Takes; seen; seen_version = 0; permits }), had)
        | 1 ->
          let seen = next () in
          let permits = next () in
          (Printf.sprintf "%s,%d," (one (may_return had seen permits))
             (out_after { of1 = 0; way_of = Returns; seen; seen_version = 0; permits }), had - next ())
        | 3 ->
          let seen = next () in
          let seen_version = next () in
          let permits = next () in
          let out = next () in
          (one (never_commits { of1 = 0; way_of = Returns; seen; seen_version; permits } out (next ())) ^ ",", had)
        | _ -> ("", had + next ())
      in
      (said ^ string_of_int had) :: after had (n - 1)
  in
  String.concat "," (after 0 (next ()))

(* Of a provider's mark: the one by which it is replaced, and that after an operator's word. Of a window
   without a total: whether that says nothing, and since when older totals count. Whether permits are
   handed out, taken and given back by a total or without one, and who writes it. *)
let mark () =
  let one b = if b then "1" else "0" in
  let said k = Printf.sprintf "%d,%d,%s" k.mark_of k.before (one k.keys_told) in
  let m =
    match next () with
    | 0 -> No_mark
    | 1 -> Bad_mark
    | _ ->
      let mark_of = next () in
      let before = next () in
      Marked { mark_of; before; keys_told = flag () }
  in
  let here = next () in
  let left = next () in
  let clock = next () in
  let e = next () in
  let renewal = match renewed m here left clock e with None -> "0" | Some k -> "1," ^ said k in
  let word = said (told m here clock e) in
  let at = next () in
  let start = next () in
  let s = says_of m at here start (flag ()) in
  let there = flag () in
  let writer = next () in
  let is_withheld = flag () in
  let unreadable = flag () in
  let total = if there then Some { writer; is_withheld; unreadable } else None in
  let out = one (hands_out_by s here total (next ())) in
  Printf.sprintf "%s,%s,%s,%d,%s,%s,%s,%d,%d" renewal word (one s.lost) s.vouched out out out here here

(* The shares of a key with owners, of all that take part. *)
let owners () =
  let total = next () in
  let m = next () in
  let all = List.mapi (fun i v -> (i, v)) (list unsigned) in
  String.concat "," (List.map (fun i -> string_of_int (owner_share total m all i)) all)

(* What a bucket has ready, and its instant, after each event: a share and burst, or a take. *)
let bucket () =
  let every = z (next ()) in
  let rec after b = function
    | 0 -> []
    | n ->
      let kind = next () in
      let now = z (next ()) in
      let b =
        if kind = 0 then
          let rate = z (next ()) in
          roll every b now rate (z (next ()))
        else take every b (z (next ())) now
      in
      Printf.sprintf "%d,%d" (int (ready every b now)) (int b.empty) :: after b (n - 1)
  in
  String.concat "," (after { empty = unused; rate = Z0; burst = Z0 } (next ()))

(* What a ledger of instance 0 has left after each event: a bound of a window, permits that it
   issues, those that it lends, and a number that it is told. Before that the number that it tells,
   or how much of one it counts. *)
let loans () =
  let total = next () in
  let handed n w loan ps = List.init n (fun _ -> { who = 0; at_ = q 0; win = z w; loan }) @ ps in
  let rec after w own lent heard ps = function
    | 0 -> []
    | n ->
      let sum = List.fold_left (fun s (_, k) -> s + k) 0 heard in
      let said, w, own, lent, heard, ps =
        match next () with
        | 0 ->
          let v = next () in
          let own = next () in
          if v = w then ("", w, own, lent, heard, ps) else ("", v, own, 0, [], ps)
        | 1 -> ("", w, own, lent, heard, handed (next ()) w None ps)
        | 2 ->
          let j = next () in
          let k = next () in
          let ps = handed k w (Some (j, 0)) ps in
          (string_of_int (number 0 j (z w) ps) ^ ",", w, own, lent + k, heard, ps)
        | _ ->
          let h = next () in
          let had = try List.assoc h heard with Not_found -> 0 in
          let k = counts_more total own sum lent had (next ()) in
          (string_of_int k ^ ",", w, own, lent, (h, had + k) :: List.remove_assoc h heard, ps)
      in
      let sum = List.fold_left (fun s (_, k) -> s + k) 0 heard in
      (said ^ string_of_int (leaves own sum 0 (z w) ps)) :: after w own lent heard ps (n - 1)
  in
  String.concat "," (after (-1) 0 0 [] [] (next ()))

(* The permits in a ring after each take, which has a slot and a number. *)
let ring () =
  let transit = z (next ()) in
  let slot = z (next ()) in
  let span = slots_that_count transit slot in
  let rec after all = function
    | 0 -> []
    | n ->
      let now = z (next ()) in
      let all = (now, z (next ())) :: all in
      string_of_int (int (in_ring span now all)) :: after all (n - 1)
  in
  String.concat "," (after [] (next ()))

(* The least settle time, and whether one obeys that. *)
let timing () =
  let d = z (next ()) in
  let step = z (next ()) in
  let s = z (next ()) in
  let f = z (next ()) in
  let e = z (next ()) in
  let least = min_settle d step f e (z (next ())) in
  Printf.sprintf "%d %d" (int least) (if Z.leb least s then 1 else 0)

let () =
  try
    while true do
      match String.split_on_char ' ' (input_line stdin) with
      | kind :: words ->
        rest := words;
        print_endline
          (match kind with
           | "bound" -> bound ()
           | "bucket" -> bucket ()
           | "judge" -> judge ()
           | "loans" -> loans ()
           | "mark" -> mark ()
           | "owners" -> owners ()
           | "purse" -> purse ()
           | "ring" -> ring ()
           | "window" -> window ()
           | "timing" -> timing ()
           | _ -> failwith ("no question is called " ^ kind))
      | [] -> ()
    done
  with End_of_file -> ()
