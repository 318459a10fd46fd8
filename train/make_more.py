"""More sentences for the teacher, beyond those of make_text.py: DIR/more.tsv, whose ids go on where text.tsv ends.

  python make_more.py --out DIR [--root /] [--books FOLDER] [--total 640000]

DIR has text.tsv, heldout.tsv and dev.tsv; no sentence of theirs comes again, and none that has five words in a row with a held-out one.
ROOT is where these Debian packages are installed or unpacked (any may be missing): dict-gcide, dict-foldoc, dict-jargon, sword-text-web,
bible-kjv, anarchism, cfi-en, crawl-common, endless-sky-data, wesnoth-1.16-* (campaigns), freeciv-data, gnome-user-docs,
libreoffice-help-en-us, debian-reference-en, debian-faq, debian-history, debian-policy, debian-handbook, developers-reference, maint-guide,
git-doc, postgresql-doc-15, python3.11-doc, perl-doc, fortune-anarchism, fortunes-bofh-excuses; installed: wordnet-base, wamerican,
wbritish, miscfiles, iso-codes. BOOKS is a folder of books in plain text or Markdown whose head says "Year: N"; those of 1930 and before are
read. Nearly all words of a sentence must stand in a dictionary. Shuffled: any beginning within the first half has the same mixture
(about 65 of 100 sentences are prose, 20 about names and seldom words, 15 figures, dates, abbreviations, short answers, weak endings), and
all that is there for the sake of seldom words stands in it, since no more may be spoken.
"""
import argparse
import collections
import glob
import gzip
import html
import json
import multiprocessing as mp
import os
import random
import re
import struct
import subprocess
import unicodedata
import zlib

import make_text as M

ROOT = "/"
PLAIN = {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2014": "--", "\u2013": "-", "\u2026": "...", "\u00a0": " ", "\u00e6": "ae",
         "\u0153": "oe", "\u2010": "-", "\u2011": "-", "\u2212": "-"}
SHORT = "Mr Mrs Ms Dr St Prof Capt Col Gen Lt Sgt Rev Hon Messrs Mme Mlle Jr Sr vs etc e.g i.e cf Esq No Vol ch p pp".split()
END = re.compile(r"(\S*[.!?][\"')]*)\s+(?=[\"'(A-Z0-9])")
NO_END = re.compile(r"[\"'(]*([A-Z]|" + "|".join(map(re.escape, SHORT)) + r")\.$")

FIRST = dict.fromkeys(("about-name", "definition", "book-seldom", "carrier"), 0.5) | dict.fromkeys(("figure", "short", "weak"), 0.8)      # the share of
                                                           # the file, from its beginning, in which all of a kind stand


def plain(s):
    s = "".join(PLAIN.get(c, c) for c in s)
    return s if s.isascii() else unicodedata.normalize("NFKD", s).encode("ascii", "ignore").decode()


def split(paragraph):
    """The sentences of a paragraph. Quotation marks that open or close elsewhere go."""
    p = re.sub(r"\s+", " ", plain(paragraph))
    p = re.sub(r"[_*]|\[[^\]]*\]", "", p)
    out = []
    for s in END.sub(lambda m: m.group(1) + (" " if NO_END.match(m.group(1)) else "\n"), p).split("\n"):
        if not 8 < len(s) < 200:
            continue
        if s.count('"') % 2:
            s = s.replace('"', "")
        s = M.tidy(re.sub(r"\s+([.,;:!?])", r"\1", s))
        if not re.search(r"[.!?;:], |^\" ", s):
            out.append(s)
    return out


def read(path):
    with (gzip.open if path.endswith((".gz", ".dz")) else open)(path, "rb") as f:
        return f.read().decode("utf-8", "replace")


def files(*patterns):
    """Of ROOT and of what is installed; the same file once."""
    found = {}
    for r in ("/", ROOT):
        for p in patterns:
            found.update({os.path.relpath(f, r): f for f in glob.glob(os.path.join(r, p), recursive=True) if os.path.isfile(f)})
    return [found[k] for k in sorted(found)]


def gcide():
    """The GNU dictionary (Webster 1913): definitions, the examples after "as,", quotations."""
    out = []
    for f in files("usr/share/dictd/gcide.dict.dz"):
        for entry in re.split(r"\n(?=\S)", read(f)):
            if "\\" not in entry.split("\n", 1)[0]:
                continue
            body = re.sub(r"\[[^\]]*\]", " ", entry)
            for p in re.split(r"\n\s*\n", body.split("\n", 1)[-1]):
                p = re.sub(r"\s+", " ", p).strip()
                if re.match(r"(Syn|Etymology|Usage)\b|\{", p):
                    continue
                p = re.sub(r"^(Note:|\d+\.|\([a-z]\)|\s)+", "", p)
                p = re.sub(r"\([A-Z][^)]*\.\)|[{}]", "", p)
                for q in re.split(r"--\s?[A-Z][^.]*\.[^.]{0,12}\.?|[;:,] as,|\([a-z]\)|;", p):
                    if not re.search(r"\b(See|Cf|Same as|pl|Obs|R|fr)\b\.?", q):
                        out += split(q)
    return out


def foldoc():
    out = []
    for f in files("usr/share/dictd/foldoc.dict.dz", "usr/share/dictd/jargon.dict.dz"):
        for p in re.split(r"\n\s*\n", read(f)):
            p = re.sub(r"<[^>]*>|\[[^\]]*\]|[{}]|^\s*[A-Za-z ]*/[^/]*/", "", re.sub(r"\s+", " ", p))
            if len(p) > 60:
                out += split(p)
    return out


def world_english_bible():
    """SWORD's compressed text: an index of blocks, and one of verses within them."""
    out = []
    for b in files("usr/share/sword/modules/texts/ztext/engWEB*/*.bzv"):
        z, s, v = (open(b[:-3] + e, "rb").read() for e in ("bzz", "bzs", "bzv"))
        blocks = [zlib.decompress(z[o:o + n]) for o, n, _ in struct.iter_unpack("<III", s) if n]
        for k, at, n in struct.iter_unpack("<IIH", v):
            if n and k < len(blocks):
                t = blocks[k][at:at + n].decode("utf-8", "replace")
                t = re.sub(r"<(note|title)\b.*?</\1>|<[^>]*>", " ", t, flags=re.S)
                for q in re.split(r"[:;]", t):
                    out += split(q)
    return out


def king_james():
    books = ("gen exo lev num deu josh judg ruth 1sam 2sam 1king 2king 1chr 2chr ezra neh est job psa pro ecc song isa jer lam ezek dan hosea joel amos "
             "mic hab zech mal mat mark luke john acts rom 1cor 2cor gal eph phil col 1the 1tim heb jam 1pet 1john rev").split()
    out = []
    for b in books:
        try:
            t = subprocess.run(["bible", "-f", f"{b}1:1-{b}150:200"], capture_output=True, text=True, timeout=60).stdout
        except (OSError, subprocess.TimeoutExpired):
            return out
        for line in t.split("\n"):
            m = re.match(r"^\S+\d+:\d+ (.*)", line)
            if m:
                out += [M.tidy(x) for x in re.split(r"[:;]", m.group(1))]
    return out


def pages(*patterns):
    """Paragraphs of HTML or Mallard pages; a sentence with code in it is marked so that it is not used."""
    out = []
    for f in files(*patterns):
        t = re.sub(r"(?is)<(script|style|pre|screen|head|info)\b.*?</\1>", " ", read(f))
        t = re.sub(r"(?is)<(code|tt|kbd|input|cmd|link|xref|samp|var|sup|sub)\b[^>]*?(/>|>.*?</\1>)", lambda m: " ^ " if m.group(1) != "link" else " " + re.sub("<[^>]*>", "", m.group(0)) + " ", t)
        for p in re.findall(r"(?is)<(?:p|li|dd|item|desc)\b[^>]*>(.*?)(?=</?(?:p|li|dd|dt|ul|ol|div|table|item|desc|steps|list|h\d)\b)", t):
            p = html.unescape(re.sub(r"<[^>]*>", "", p))
            if len(p) > 20:
                out += split(p)
    return out


def games():
    out = []
    for f in files("usr/share/games/wesnoth/*/data/**/*.cfg"):
        for p in re.findall(r'_ ?"((?:[^"]|"")*)"', read(f)):
            for q in p.replace('""', '"').split("\n"):
                out += split(q)
    for f in files("usr/share/games/endless-sky/data/**/*.txt"):
        for p in re.findall(r"`([^`]*)`", read(f)):
            out += split(p)
    for f in files("usr/share/crawl/dat/descript/*.txt", "usr/share/crawl/dat/database/*.txt", "usr/share/games/freeciv/*helpdata.txt"):
        for p in re.split(r"\n\s*\n|%%%%", read(f)):
            out += split(re.sub(r"(?m)^(#|w:|VISUAL:|SOUND:).*$|\\n\\?|_\(\"", " ", p))
    return out


def pods():
    out = []
    for f in files("usr/share/perl/5*/pod/perl*.pod"):
        for p in re.split(r"\n\s*\n", read(f)):
            if p and not p[0] in "= \t":
                p = re.sub(r"[BIF]<([^<>]*)>", r"\1", p)
                out += split(re.sub(r"[A-Z]<+[^>]*>+", " ^ ", p))
    return out


def cookies():
    out = []
    for f in files("usr/share/games/fortunes/*"):
        if "." not in os.path.basename(f) and "mario" not in f:
            for q in read(f).split("\n%\n"):
                out += split(re.split(r"\n\s+--", q)[0])
    return out


def book(job):
    f, seed, share = job
    t = read(f)
    y = re.search(r"Year:\s*(-?\d+)", t[:600])
    if not y or int(y.group(1)) > 1930:
        return []
    rng, out = random.Random(seed), []
    for p in re.split(r"\n\s*\n", t):
        if len(p) > 12 and p.lstrip()[0] not in "#|>!<-" and rng.random() < share:
            out += split(p)
    return out


def wordnet():
    """Every part of every gloss; and the word with its gloss: (plain sentences, sentences about names, sentences with seldom words)."""
    gl, who, defs = [], [], []
    seen_ex, _ = M.wordnet()
    for f in files("usr/share/wordnet/data.*"):
        kind = f.rsplit(".", 1)[1]
        for line in open(f, encoding="latin-1"):
            if "|" not in line or line.startswith("  "):
                continue
            head, g = line.split("|", 1)
            w = head.split()
            words = [x.replace("_", " ") for x in w[4:4 + 2 * int(w[3], 16):2]]
            parts = [x.strip() for x in re.sub(r'"[^"]*"?', "", g).split(";")]
            gl += [M.tidy(x) for x in parts]
            d, x = re.sub(r"^\([^)]*\)\s*", "", parts[0]), words[0]
            if not d:
                continue
            for x in words[:2]:
                x = re.sub(r"\(\w+\)$", "", x)
                if " @i " in head:
                    e = "" if re.match(r"(an?|the|one|any|either) ", d) else "an " if d[0] in "aeiouAEIO" else "a "
                    who.append(M.tidy(f"{x} {'was' if re.search(r'[(]1[0-9]{3}', d) or 'who' in d[:90] else 'is'} {e}{re.sub(r' ?[(][^)]*[)]', '', d)}"))
                elif kind == "noun" and re.match(r"(an?|the|any|some|someone|something|one) ", d):
                    defs.append(M.tidy(f"{'An' if x[0] in 'aeiou' else 'A'} {x} is {d}" if re.match("an? |any |some", d) else f"The {x} is {d}"))
                elif kind == "verb" and not re.match(r"be |have ", d):
                    defs.append(M.tidy(f"To {x} is to {d}"))
                elif kind == "adj":
                    defs.append(M.tidy(f"Something {x} is {d}" if re.match(r"(not|very|capable|able|full|having|free|without|resembling) ", d) else f"What is {x} is {d}"))
                elif kind == "adv":
                    defs.append(M.tidy(f"To do it {x} is to do it {d}"))
    return gl + seen_ex, who, defs


def names():
    prop = [x for f in files("usr/share/dict/propernames.gz") for x in read(f).split() if x.isalpha()]
    places = []
    for f, key in (("iso_3166-1", "3166-1"), ("iso_3166-2", "3166-2"), ("iso_639-3", "639-3")):
        for path in files(f"usr/share/iso-codes/json/{f}.json"):
            for r in json.load(open(path))[key]:
                n = plain(r.get("common_name", r["name"])).split(",")[0].split("(")[0].strip()
                if n.isascii() and re.match(r"^[A-Z][a-z]+( [A-Z][a-z]+)?$", n) and (key != "639-3" or "alpha_2" in r):
                    places.append((n, "language" if key == "639-3" else "place"))
    return prop, places


def common(lower):
    """make_text's common words without those that are names or make an odd plural."""
    cw = M.common_words()
    cw["n"] = [w for w in cw["n"] if w in lower and not w.endswith(("s", "y", "x", "ch", "sh")) or not lower]
    return {p: [w for w in v if w in lower or not lower] for p, v in cw.items()}


def templates(rng, cw, n_name, n_fig, n_short, n_weak):
    """Sentences from templates: names and places, figures, short ones, weak endings."""
    R, C = rng.randint, rng.choice
    prop, places = names()
    N = cw["n"][:1500] or ["house", "river"]
    A, V = cw["a"][:500] or ["good", "large"], "called met thanked helped told found saw warned taught followed invited visited answered believed missed trusted married asked".split()
    where, tongue = [p for p, k in places if k == "place"] or ["London"], [p for p, k in places if k == "language"] or ["French"]
    who = lambda: C(M.COMMON_NAMES) if rng.random() < 0.5 or not prop else C(prop)
    last = lambda: C("Smith Jones Taylor Brown Williams Wilson Johnson Davies Robinson Wright Thompson Evans Walker White Roberts Green Hall Wood Jackson Clarke Harris Clark Cooper King Lee Martin Morris Moore Ward Hill Baker Carter Phillips Mitchell Murphy Kelly Ryan Sullivan Cohen Garcia Martinez Rodriguez Lopez Gonzalez Nguyen Patel Khan Singh Chen Wang Kim Park Tanaka Suzuki Mueller Schmidt Novak Rossi Silva Anderson Hansen Larsen Ivanov".split())
    place = lambda: C(where) if rng.random() < 0.7 else C("London Paris Berlin Tokyo Boston Chicago Madrid Rome Sydney Toronto Dublin Seattle Denver Moscow Vienna Delhi Cairo Oslo Prague Lisbon Athens Warsaw Brussels Geneva Zurich Amsterdam Copenhagen Stockholm Helsinki Budapest Istanbul Beijing Shanghai Singapore Bangkok Manila Jakarta Melbourne Auckland Houston Dallas Phoenix Atlanta Miami Detroit Philadelphia Baltimore Portland Manchester Liverpool Edinburgh Glasgow Belfast".split())
    T = [
        lambda: f"{who()} and {who()} {C(V)} {who()} {C(['in', 'near', 'outside'])} {place()}.",
        lambda: f"{C(['I', 'We', 'They', 'You'])} {C(['never', 'only just', 'once', 'often', 'finally'])} {C(V)} {who()} {last()}.",
        lambda: f"{who()} {last()} {C(['of', 'from'])} {place()} {C(V)} {C(['a', 'the', 'my'])} {C(N)}.",
        lambda: f"{C(['Is', 'Was', 'Where is', 'Who is', 'How is', 'When was'])} {who()} {C(['here', 'there', 'at home', 'in ' + place(), 'with ' + who(), 'late'])}?",
        lambda: f"{who()} was born in {place()}, but {who()} {C(['grew up', 'lives', 'works', 'died', 'studied'])} in {place()}.",
        lambda: f"{C(['The capital', 'The weather', 'The coast', 'Most', 'The food', 'A map', 'The history', 'The north'])} of {place()} {C(['is', 'was', 'seems', 'looks'])} {C(A)}.",
        lambda: f"They speak {C(tongue)} {C(['and', 'but not', 'or'])} {C(tongue)} in {place()}.",
        lambda: f"{C(['We flew', 'She moved', 'He sailed', 'They drove', 'I walked', 'The train goes'])} from {place()} to {place()}{C(['.', ' in ' + C(M.MONTHS) + '.', ' with ' + who() + '.'])}",
        lambda: f"{C(['Mr.', 'Mrs.', 'Ms.', 'Dr.', 'Professor', 'Captain', 'Aunt', 'Uncle'])} {last()} {C(V)} {who()}{C(['.', '?', ' again.', ' on ' + C(M.DAYS) + '.', ', not ' + who() + '.'])}",
        lambda: f"{who()}, {C(['this is', 'have you met', 'do you know', 'please call', 'say hello to', 'wait for'])} {who()}{C(['.', '?'])}",
        lambda: f"{who()}'s {C(['mother', 'father', 'brother', 'sister', 'friend', 'neighbor', 'teacher', 'dog', 'cousin', 'boss', 'house', 'car'])}{C(['', ', ' + who() + ','])} {C(['lives', 'is', 'was', 'stayed', 'works'])} in {place()}.",
        lambda: f"{C(['According to', 'Thanks to', 'Next to', 'Unlike', 'Because of', 'Together with', 'Without'])} {who()}, {who()} {C(['is', 'was', 'seemed', 'looked'])} {C(A)}.",
        lambda: f"It was {who()} who {C(V)} {who()}.",
        lambda: f"{C(['The letter', 'The book', 'This song', 'The painting', 'The call'])} {C(['is', 'was'])} {C(['from', 'for', 'by', 'about'])} {who()}{C([' ' + last(), ''])}.",
    ]
    named = [C(T)() for _ in range(n_name)]
    aux = "I you we they he she it".split()
    will = lambda: C(["I'll", "you'll", "we'll", "they'll", "he'll", "she'll", "it'll", "that'll", "there'll", "who'll"])
    be = lambda: C(["I'm", "you're", "we're", "they're", "he's", "she's", "it's", "that's"])
    nt = lambda: C("don't didn't won't wouldn't couldn't shouldn't can't isn't wasn't aren't weren't hasn't haven't hadn't doesn't needn't mustn't".split())
    to = lambda: C("promise promised want wanted hope hoped try tried mean meant need needed have had like liked refuse refused agree agreed plan planned forget forgot".split())
    verb = lambda: C("see find know remember forget use buy sell open close move carry watch read write draw build break fix clean bring take leave lose miss love follow change choose keep share visit paint cook eat wash send show promise melt bend hold send".split())
    mono_a = "bent black blue bold bright broad brown burnt calm cheap clean clear cold cool cracked cross damp dark deep dim dry dull faint fair false fast fat firm flat fresh full gold good grand gray great green hard harsh high hot huge just keen kind large late lean long loose loud low mild moist neat new next old pale plain poor proud pure quick rare raw red rich ripe rough round sad safe sharp short shut sick slow small smooth soft sour stale steep stiff still straight strange strong sweet swift tall tame tart thick thin tight tired torn tough true vague warm weak wet white wide wild wise worn wrong young".split()
    mono_n = "ant arm ash axe badge band bank barn bath beach bead beak bean bed bee bell belt bench bird blade board boat bolt bone book boot bowl box branch bread brick bridge broom brush cage cake calf camp cane cap cape card cart cat cave chain chair chalk cheek chest chin clay cliff cloth cloud club coal coast coat coin comb cord cork corn couch cow crab crane crate creek crowd crown cup deck desk dish dock dog door drain dress drum duck dust ear earth edge egg elm face farm fence field fish fist flag flame flask fleece flood floor flute fold fork fort fox frame frog fruit gate ghost glass globe glove goat grape grass ground gulf hall hand hat hawk heap heart hedge hen hill hole hook horn horse hose inn jar jaw jug keel key king kite knee knife knot lace lake lamp lamb land lane leaf leg lid limb lime lip list lock log lung map mask mast meal meat mice milk mill mint moon moth mouse mouth mud mug mule nail neck nest net nose note nut oak oar oven owl pan park path peach pear pen pig pin pipe plank plate plow pond porch post pot purse quilt rail rain raft rake rat reed ring road robe rock rod roof room root rope rose rug sack sail salt sand sauce scarf school seat seed shade sheep sheet shelf shell ship shirt shoe shop shore sink skirt sky sleeve smoke snail snake snow soap sock soup spade spoon spring stair star steam steel stem step stone stool storm stove straw stream street string sun swamp sword tail tank tape tea tent thorn thread throat thumb tide tin toad tongue tooth torch tower town track train tray tree trench truck trunk tube tub vase veil vest vine wall wasp watch wave web well wharf wheat wheel whip wing wolf wood wool wreck yard yarn".split()
    W = [
        lambda: f"{C(aux).capitalize()} {to()} to{C(['.', ', but I ' + nt() + '.', ', you know.', '!'])}",
        lambda: f"{C(['That is where', 'I know what', 'Nobody knows who', 'Tell me how', 'I wonder when', 'This is how'])} {will()} be.",
        lambda: f"{C(['By', 'This time', 'Before', 'Until', 'After'])} {C(['tomorrow', 'Monday', 'then', 'noon', 'next week', 'tonight'])} {will()} be {C(['gone', 'dead', 'late', 'home', 'there', 'done', 'fine', 'back', 'asleep', C(A)])}.",
        lambda: f"The {C(mono_a)} {C(mono_n)} {C(['sat', 'lay', 'stood', 'hung', 'turned', 'slid', 'fell', 'was left', 'was thrown', 'was found'])} {C(['on', 'by', 'near', 'under', 'beside', 'behind', 'in', 'off'])} the {C(mono_a)} {C(mono_n)}.",
        lambda: f"{C(['It', 'He', 'She', 'The ' + C(mono_n), 'Nobody', 'We'])} {C(['rained', 'laughed', 'stopped', 'waited', 'hoped', 'asked', 'walked', 'tried', 'looked', 'snowed'])}, {C(['turned', 'stayed', 'hailed', 'smiled', 'called', 'danced', 'worked', 'moved', 'ended', 'jumped'])}, and {C(['snowed', 'answered', 'watched', 'started', 'wept', 'slept', 'left', 'helped', 'finished', 'sighed'])}{C([' all day', ' the same morning', ' again', ''])}.",
        lambda: f"{C(aux).capitalize()} {nt().replace('isn', 'didn').replace('wasn', 'couldn').replace('aren', 'don').replace('weren', 'won').replace('hasn', 'won').replace('haven', 'can').replace('hadn', 'wouldn')} {verb()} {C(['it', 'them', 'him', 'her', 'us', 'me', 'that', 'this', 'any of it', 'all of them'])}{C(['.', ' at all.', ' yet.', ', do you?', ' for me.', ' with us.'])}",
        lambda: f"{be().capitalize()} {C(['not ', 'never ', 'still ', 'just ', ''])}{C(A)}{C(['', ', is it', ' enough', ' of it', ' for them', ' as well', ' than that', ' like this'])}{C(['.', '?'])}",
        lambda: f"{C(['Who', 'What', 'Where', 'When', 'Why', 'How'])}{C(['s', 'd', 'll'])} {C(['he', 'she', 'it', 'that', 'the ' + C(mono_n)])} {C(['at', 'for', 'with', 'up to', 'to', 'of', 'about', 'from', 'on'])}?".replace("Whos", "Who's").replace("Whats", "What's").replace("Wheres", "Where's").replace("Whens", "When's").replace("Whys", "Why's").replace("Hows", "How's").replace("ds ", "d's ").replace("od ", "o'd ").replace("td ", "t'd ").replace("ed ", "e'd ").replace("nd ", "n'd ").replace("yd ", "y'd ").replace("wd ", "w'd ").replace("oll ", "o'll ").replace("tll ", "t'll ").replace("ell ", "e'll ").replace("nll ", "n'll ").replace("yll ", "y'll ").replace("wll ", "w'll "),
        lambda: f"{will().capitalize()} {verb()} {C(['it', 'the ' + C(mono_n), 'a ' + C(mono_a) + ' ' + C(mono_n)])} {C(['if', 'when', 'because', 'unless', 'before'])} {C(aux)} {C(['could', 'would', 'should', 'must', 'might', 'did', 'had to', 'ought to', 'can', 'will'])}.",
        lambda: f"{C(['Use', 'Take', 'Lift', 'Bring', 'Move', 'Fold', 'Press', 'Paint', 'Clean', 'Mend', 'Drop', 'Hang', 'Mark'])} the {C(mono_n)} {C(['to', 'and', 'with', 'from', 'off', 'on', 'by', 'for'])} the {C(mono_n)} {C(['of', 'in', 'at', 'for'])} the {C(mono_a)} {C(mono_n)}.",
        lambda: f"{C(['I', 'We', 'You', 'They'])}'{C(['d', 've', 'll'])} {C(['been', 'have', 'gone', 'had'])} {C(['there', 'better', 'it', 'enough', 'to go', 'of it', 'some'])}.".replace("'d have", "'d have had").replace("'ll been", "'ll have been").replace("'ll gone", "'ll have gone").replace("'ve have", "'ve had").replace("'ll had", "'ll have"),
        lambda: f"A {C(mono_n)} and a {C(mono_n)} {C(['will', 'can', 'might', 'should', 'may'])} {C(['help', 'hold', 'mend', 'cost', 'fit', 'need', 'melt', 'bend'])} the {C(mono_n)}{C(['', ' at the end', ' of the ' + C(mono_n), ' in the ' + C(mono_n)])}.",
    ]
    weak = [C(W)() for _ in range(n_weak)]
    words = [w for p in "nvar" for w in cw[p][:3000]]
    ask = "Can't Won't Couldn't Wouldn't Shouldn't Mustn't Didn't Will Can Could Would Should Did May".split()
    S = [
        lambda: C(words).capitalize() + C("..!?"),
        lambda: f"{C(words).capitalize()} {C(words)}{C('..!?')}",
        lambda: f"{C(['A', 'The', 'My', 'No', 'Your', 'One', 'Some', 'This'])} {C(N)}{C('..!?')}",
        lambda: f"{C(['A', 'The', 'My', 'No', 'Your', 'Another'])} {C(A)} {C(N)}{C('..!?')}",
        lambda: f"{C(mono_a).capitalize()} {C(mono_n)}{C('.!?')}",
        lambda: f"{who()}{C('..!?')}",
        lambda: f"{place()}{C('..!?')}",
        lambda: f"{who()} {last()}{C('..?')}",
        lambda: f"{be().capitalize()} {C(A)}{C('..!?')}",
        lambda: f"{C(M.ONES + M.TENS[1:]).capitalize()}{C(['', ' ' + C(N) + 's', ' ' + C(['hundred', 'thousand', 'million', 'percent', 'dollars', 'miles', 'times'])])}{C('..!?')}",
        lambda: f"{C(M.DAYS + M.MONTHS)}{C(['', ' ' + str(R(1, 28)), ' morning', ' evening'])}{C('..?')}",
        lambda: f"{C(ask)} {C(aux)} {verb()}{C(['', ' it', ' me', ' that'])}?",
    ]
    short = [C(S)() for _ in range(n_short)]
    acr = "FBI CIA NASA USA UK EU UN TV PC CEO CFO CTO DNA RNA GPS USB API HTML PDF FAQ VIP ATM DVD CD AI IT HR BBC CNN IBM NATO NBA NFL PhD MP RSVP SQL CPU GPU URL XML MRI IQ ID PIN WHO NHS IRS UFO LED HIV ABC NBC CBS MIT UCLA HP LG BMW VW KFC DIY AM FM PR QR VPN LAN RAM ROM SMS SIM UV".split()
    yr = lambda: C([R(1066, 1799), R(1800, 1999), R(1900, 1999), R(2000, 2009), R(2010, 2040)])
    big = lambda: C([str(R(1, 20)), str(R(21, 99)), str(R(100, 999)), f"{R(1, 99)}00", str(R(1001, 9999)), f"{R(1, 9)},{R(0, 999):03d}", f"{R(10, 999)},{R(0, 999):03d}", f"{R(1, 9)},{R(0, 999):03d},{R(0, 999):03d}", f"{R(0, 99)}.{R(0, 9)}", f"{R(0, 9)}.{R(0, 99):02d}", f"{R(1, 900)} million", f"{R(1, 9)}.{R(1, 9)} billion"])
    def nth():
        n = C([R(1, 31), R(1, 130)])
        return f"{n}{'th' if 10 < n % 100 < 14 else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"
    def day():
        n = R(1, 31)
        th = f"{n}{'th' if 10 < n < 14 else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"
        m = C(M.MONTHS)
        return C([f"{m} {th}", f"{m} {n}", f"{m} {th}, {yr()}", f"{m} {n}, {yr()}", f"{n} {m} {yr()}", f"the {th} of {m}", f"{m} {yr()}", f"{m[:3]}. {n}, {yr()}"])
    hour = lambda: f"{R(1, 12)}:{R(0, 59):02d}" + C(["", "", " am", " pm", " a.m.", " p.m.", " in the morning", " at night"])
    cash = lambda: C(["$", "$", "$", "$"]) + C([str(R(1, 999)), f"{R(1, 99)}.{R(0, 99):02d}", f"{R(1, 999)},{R(0, 999):03d}", f"{R(1, 9)}.{R(1, 9)} million", f"{R(100, 999)}.{R(0, 99):02d}", f"0.{R(1, 99):02d}"])
    unit = lambda: C("kg km cm mm lb oz ft percent miles hours minutes seconds pounds feet inches meters degrees years dollars pages people kilograms kilometers liters gallons acres tons volts watts".split())
    G = [
        lambda: f"{C(['In', 'Since', 'Before', 'By', 'Around', 'Until', 'During'])} {yr()}, {who()} {C(['had', 'sold', 'found', 'lost', 'owned', 'built'])} {big()} {C(N)}s.",
        lambda: f"{C(['The', 'Our', 'Their', 'Every'])} {C(N)} {C(['opened', 'closed', 'started', 'burned down', 'was sold', 'ended', 'changed'])} on {day()}{C(['', ' at ' + hour()])}.".replace("..", "."),
        lambda: f"{who()} {C(['paid', 'owes me', 'earned', 'spent', 'lost', 'won', 'saved', 'borrowed'])} {cash()} {C(['for the', 'on a', 'in one', 'with her'])} {C(N)}.",
        lambda: f"{C(['The', 'This', 'My', 'Each'])} {C(N)} is {big()} {unit()} {C(['long', 'wide', 'high', 'old', 'away', 'too much', 'more'])}.",
        lambda: f"{C(['See', 'Turn to', 'Read', 'Compare', 'Open'])} {C(['page', 'chapter', 'section', 'figure', 'table', 'line', 'step', 'part'])} {C([str(R(1, 600)), f'{R(1, 20)}.{R(1, 20)}'])} {C(['of', 'in', 'for'])} the {C(N)}.",
        lambda: f"{C(['Call', 'Meet', 'Wake', 'Pick up', 'Text', 'Drive'])} {who()} {C(['at', 'before', 'after', 'around'])} {hour()}{C([' on ' + C(M.DAYS), ' tomorrow', ''])}.".replace("..", "."),
        lambda: f"The {C(acr)} {C([C(N), ''])} {C(['and', 'or', 'from', 'for', 'of'])} the {C(acr)} {C(['is', 'was', 'failed', 'works', 'changed', 'grew', 'moved'])} in {yr()}.".replace("  ", " "),
        lambda: f"{C(['My', 'The', 'Your', 'Her', 'An old', 'This'])} {C(acr)} {C(['needs', 'has', 'shows', 'costs', 'uses', 'lost'])} {big()} {C([C(N) + 's', unit()])}.",
        lambda: f"{C(['Do you', 'Did they', 'Can we', 'Will she', 'Why did he'])} {C(['need', 'want', 'have', 'sell', 'send', 'use', 'find'])} {big()} {C(N)}s{C(['', ' by ' + hour(), ' for ' + cash(), ' before ' + day()])}?".replace(".?", "?"),
        lambda: f"The {nth()} {C(N)} {C(['is', 'was', 'came', 'ended'])} {C(['better', 'worse', 'later', 'the same'])} {C(['as', 'than'])} the {nth()}.".replace("better as", "better than").replace("worse as", "worse than").replace("later as", "later than").replace("same than", "same as"),
        lambda: f"{big()}% {C(['of', 'more', 'less'])} {C(['the', 'our', 'all'])} {C(N)}s {C(['and', 'or', 'but'])} {R(1, 99)}% of the {C(N)}s {C(['are', 'were'])} {C(A)}.".replace("% more", "% more of").replace("% less", "% less of").replace(" million%", "%").replace(" billion%", "%"),
        lambda: f"{C(['Dr.', 'Mr.', 'Mrs.', 'Ms.', 'Prof.', 'St.', 'Gen.', 'Sen.', 'Lt.', 'Sgt.', 'Rev.'])} {last()} {C(['lives at', 'moved to', 'left', 'sold'])} {R(1, 9999)} {last()} {C(['St.', 'Ave.', 'Rd.', 'Blvd.', 'Street', 'Avenue', 'Road', 'Lane', 'Drive'])}{C([' in ' + place(), ', ' + place(), ' on ' + day()])}.",
        lambda: f"{C(['Take', 'Use', 'Mix', 'Add', 'Order', 'Bring'])} {C([str(R(1, 12)), f'{R(1, 9)}.5', '1/2', '3/4', '1/4', 'half a'])} {C(['cup', 'cups', 'spoon', 'kg', 'lb', 'pint', 'bag', 'box'])} of {C(['flour', 'sugar', 'milk', 'water', 'rice', 'salt', 'butter', 'oil', 'sand', 'paint', 'tea', 'beans'])}.",
        lambda: f"{C(['Flight', 'Bus', 'Train', 'Gate', 'Room', 'Route', 'Highway', 'Platform', 'Apollo', 'Version', 'Channel', 'Section'])} {C([str(R(1, 99)), str(R(100, 999)), C('ABCDEFGHJK') + str(R(1, 99))])} {C(['leaves', 'opens', 'closes', 'starts', 'ends', 'was late', 'is free'])}{C([' at ' + hour(), ' on ' + C(M.DAYS), ' in ' + place(), ''])}.".replace("..", "."),
        lambda: f"{C(['e.g.,', 'i.e.,', 'For example,', 'That is,', 'vs.', 'No.'])} {C(['the', 'a'])} {C(N)} {C(['vs.', 'and', 'or', 'plus'])} {C(['the', 'a'])} {C(N)}, {C(['etc.', 'and so on.', 'approx. ' + big() + ' in all.'])}",
        lambda: f"{R(1, 999)} {C(['+', '-', 'x', 'plus', 'times', 'minus', 'divided by', 'and'])} {R(1, 99)} {C(['=', 'is', 'equals', 'makes'])} {R(1, 9999)}.",
    ]
    fig = [C(G)() for _ in range(n_fig)]
    return ([("place-name", M.tidy(s)) for s in named], [("figure", M.tidy(s)) for s in fig], [("short", M.tidy(s)) for s in short],
            [("weak", M.tidy(s)) for s in weak])


def carriers(rng, words, pos, cw):
    """A sentence for each word, by its part of speech."""
    C = rng.choice
    N, A = cw["n"][:900] or ["house", "river"], cw["a"][:400] or ["good", "large"]
    n, a, who = lambda: C(N), lambda: C(A), lambda: C(M.COMMON_NAMES + ["She", "He", "They", "We", "My friend", "The teacher"])
    art = lambda w: ("an " if w[0] in "aeiou" else "a ") + w
    T = dict(
        n=[lambda w: f"The {w} was {a()}.", lambda w: f"{who()} saw {art(w)} near the {n()}.", lambda w: f"Is that your {w}?", lambda w: f"We talked about the {w} and the {n()}.",
           lambda w: f"{who()} put the {n()} beside the {w}.", lambda w: f"{art(w).capitalize()} and {art(n())} are not the same.", lambda w: f"There was no {w} in the {n()}.",
           lambda w: f"{w.capitalize()} is what {who()} wanted.", lambda w: f"What kind of {w} is it?", lambda w: f"I know little of {w}."],
        ns=[lambda w: f"The {w} were {a()}.", lambda w: f"How many {w} did you see?", lambda w: f"{who()} likes {w}.", lambda w: f"{w.capitalize()} and {n()}s came from the {n()}.",
            lambda w: f"{who()} lost all the {w}.", lambda w: f"Some {w} are {a()}, others are not.", lambda w: f"The {n()} was full of {w}."],
        v=[lambda w: f"They {w} the {n()} every day.", lambda w: f"Please don't {w} the {n()}.", lambda w: f"{who()} wanted to {w} before noon.", lambda w: f"Will you {w} it again?",
           lambda w: f"We can't {w} without the {n()}.", lambda w: f"I would rather {w} than wait.", lambda w: f"Let's {w}."],
        vs=[lambda w: f"{C(M.COMMON_NAMES)} {w} the {n()}.", lambda w: f"It {w} too often.", lambda w: f"The {n()} {w}, and nobody knows why."],
        ed=[lambda w: f"{who()} {w} the {n()}.", lambda w: f"The {n()} was {w} by a {n()}.", lambda w: f"It has been {w} already.", lambda w: f"They {w} for an hour.", lambda w: f"A {w} {n()} lay on the {n()}."],
        ing=[lambda w: f"{C(M.COMMON_NAMES)} is {w} the {n()}.", lambda w: f"They kept {w} all day.", lambda w: f"{w.capitalize()} is harder than it looks.", lambda w: f"The {n()} needs {w}.", lambda w: f"I heard {w} in the {n()}."],
        a=[lambda w: f"It was {art(w)} {n()}.", lambda w: f"The {n()} seemed quite {w}.", lambda w: f"Her {w} {n()} surprised us.", lambda w: f"How {w} it is!", lambda w: f"Nothing is as {w} as that {n()}.", lambda w: f"Was it {w} or {a()}?"],
        r=[lambda w: f"{who()} answered {w}.", lambda w: f"The {n()} moved {w} to the {n()}.", lambda w: f"It was {w} done.", lambda w: f"{w.capitalize()}, the {n()} came back."],
        x=[lambda w: f"The word is {w}.", lambda w: f"{who()} said {w} twice.", lambda w: f"Can you spell {w}?", lambda w: f"I thought of {w} and {n()}.", lambda w: f"{w.capitalize()}, {n()}, and {n()}."])
    def kind(w):
        if w in pos and w not in ("is",):
            return C(pos[w])
        for end, cut, add, k in (("ing", 3, ("", "e"), "ing"), ("ed", 2, ("", "e"), "ed"), ("ied", 3, ("y",), "ed"), ("ies", 3, ("y",), "s"), ("es", 2, ("", "e"), "s"), ("s", 1, ("",), "s"), ("ly", 2, ("", "le"), "r")):
            for t in add:
                b = w[:-cut] + t
                if w.endswith(end) and (b in pos or (len(b) > 3 and b[-1] == b[-2] and b[:-1] in pos)):
                    p = pos.get(b) or pos.get(b[:-1])
                    return k if k != "s" else "ns" if "n" in p else "vs"
        return "x"
    return [("carrier", C(T[kind(w)])(w)) for w in words]


def main():
    global ROOT
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    ap.add_argument("--root", default="/", help="where Debian packages are installed or unpacked")
    ap.add_argument("--books", help="a folder of books in plain text or Markdown")
    ap.add_argument("--total", type=int, default=640000)
    ap.add_argument("--jobs", type=int, default=2)
    a = ap.parse_args()
    ROOT = a.root
    rng = random.Random(21)
    key = lambda s: re.sub(r"[^a-z0-9 $:.%]", "", s.lower()).rstrip(".")
    lines = [l.rstrip("\n").split("\t") for l in open(os.path.join(a.out, "text.tsv"))]
    held = M.HARVARD + [l.rstrip("\n").split("\t")[k] for n in ("heldout.tsv", "dev.tsv") for l in open(os.path.join(a.out, n)) for k in (1, 3)]
    toks = lambda s: re.findall(r"[a-z]+(?:'[a-z]+)?", s.lower())
    shingles = {tuple(w[i:i + 5]) for s in held for w in [toks(s)] for i in range(max(1, len(w) - 4))}
    seen = {key(l[1]) for l in lines} | {key(s) for s in held}
    count = collections.Counter(w for l in lines for w in toks(l[1]))
    old_types = set(count)

    known, lower = set(), set()
    for f in files("usr/share/dict/american-english", "usr/share/dict/british-english"):
        for w in read(f).split("\n"):
            lower.add(w) if w[:1].islower() else known.add(w.lower())
    pos = {}
    for f in files("usr/share/wordnet/data.*"):
        k = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}[f.rsplit(".", 1)[1]]
        for line in open(f, encoding="latin-1"):
            w = line.split()
            if not line.startswith("  "):
                for x in w[4:4 + 2 * int(w[3], 16):2]:
                    for y in re.sub(r"\(\w+\)$", "", x).split("_"):
                        known.add(y.lower())
                    if re.match(r"^[a-z]+$", x) and k not in pos.get(x, ""):
                        pos[x] = pos.get(x, "") + k
    prop, places = names()
    known |= lower | {p.lower() for p in prop} | {w for p, _ in places for w in p.lower().split()}
    known |= {"don't", "it's", "i'm", "i've", "i'll", "i'd", "let's", "o'clock", "ma'am"} | {w for w, n in count.items() if n > 20}

    def usable(s, lo=3, odd=0.12):
        """Whole, speakable, new, and made of known words (a seventh of the sentences may have one that is not)."""
        if not M.good(s, lo) or re.search(r"[\^@=<>#+]|\d{5}| [b-hj-zB-HJ-Z] |\.\w|[a-z][A-Z]|\b[A-Z]{4,}", s) and lo > 1:
            return False
        w = toks(s)
        bad = sum(1 for x in w if x not in known and re.sub(r"'(s|ll|d|ve|re)$|n't$|s$", "", x) not in known)
        if bad and (bad > 1 or len(w) < 6 or rng.random() > odd) or not w and lo > 1:
            return False
        k = key(s)
        if k in seen or any(tuple(w[i:i + 5]) in shingles for i in range(max(1, len(w) - 4))):
            return False
        seen.add(k)
        return True

    doc = "usr/share/doc/"
    gloss, about, defs = wordnet()
    sources = [
        ("wn-gloss", gloss, 60000), ("gcide", gcide(), 65000), ("game", games(), 60000), ("web-bible", world_english_bible(), 9000), ("bible", king_james(), 6000),
        ("anarchism", pages(doc + "anarchism/html/*.html"), 22000), ("help", pages("usr/share/help/C/**/*.page", "usr/share/libreoffice/help/en-US/text/**/*.html"), 25000),
        ("debian-doc", pages(doc + "debian-*/**/*.html", doc + "developers-reference/**/*.html", doc + "maint-guide/**/*.html", doc + "debian/**/*.html", doc + "cfi-en/**/*.html"), 12000),
        ("program-doc", pages(doc + "git-doc/**/*.html", doc + "postgresql-doc-15/html/*.html", doc + "python3.11/html/**/*.html") + pods(), 14000),
        ("foldoc", foldoc(), 15000), ("fortune", cookies(), 6000)]
    chosen, pool, table = [], [], []

    def take(name, s):
        chosen.append((name, s))
        count.update(toks(s))

    def report(name, found, ok, kept):
        types = {w for _, s in kept for w in toks(s)}
        table.append((name, found, ok, len(kept), len(types - old_types)))
        print(f"{name}: {found} found, {ok} usable, {len(kept)} kept, {len(types)} word types, {len(types - old_types)} of them not in text.tsv", flush=True)

    for name, got, cap in sources:
        rng.shuffle(got)
        ok = [s for s in got if usable(s)]
        for s in ok[:cap]:
            take(name, s)
        pool += [(name, s) for s in ok[cap:]]
        report(name, len(got), len(ok), [(name, s) for s in ok[:cap]])
    n, cw = a.total, common(lower)
    for name, got, cap in (("about-name", about, n // 50), ("definition", defs, n // 40)):
        rng.shuffle(got)
        ok = [s for s in got if usable(s)]
        if name == "definition":                           # those first whose words are seldom
            ok.sort(key=lambda s: min(count[w] for w in toks(s)))
        for s in ok[:cap]:
            take(name, s)
        report(name, len(got), len(ok), [(name, s) for s in ok[:cap]])
    for (got, cap) in zip(templates(rng, cw, n // 13, n // 12, n // 30, n // 22), (n // 16, n // 15, n // 45, n // 27)):
        ok = [x for x in got if usable(x[1], 1, 1)]
        for x in ok[:cap]:
            take(*x)
        report(got[0][0], len(got), len(ok), ok[:cap])
    # books: what holds a seldom word first, the rest as it comes
    books = []
    if a.books:
        fs = sorted(f for f in glob.glob(os.path.join(a.books, "**/*"), recursive=True) if f.endswith((".md", ".txt")) and "README" not in f)
        with mp.Pool(a.jobs) as p:
            books = [("book", s) for x in p.map(book, [(f, i, 0.25) for i, f in enumerate(fs)], chunksize=4) for s in x]
    rng.shuffle(books)
    found = len(books)
    books = [x for x in books if usable(x[1])]
    rare, rest = [], []
    for x in books:
        w = [t for t in toks(x[1]) if t in lower]
        if w and min(count[t] for t in w) < 12 and len(rare) < n // 8:
            rare.append(("book-seldom", x[1]))
            count.update(toks(x[1]))
        else:
            rest.append(x)
    chosen += rare
    report("book-seldom", found, len(books), rare)
    # words that are still seldom
    seldom = [w for w in sorted(lower) if re.match(r"^[a-z]{3,14}$", w) and count[w] < 3]
    words = [w for w in seldom for _ in range(3 - count[w])]
    rng.shuffle(words)
    got = carriers(rng, words, pos, cw)
    ok = [x for x in got if usable(x[1], 2, 1)][:n // 10]
    for x in ok:
        take(*x)
    report("carrier", len(got), len(ok), ok)
    rest = (rest + pool)[:max(0, n - len(chosen))] if len(rest) >= n - len(chosen) else rest + pool[:max(0, n - len(chosen) - len(rest))]
    for x in rest:
        take(*x)
    report("book and others", found, len(books), rest)
    rng = random.Random(22)
    chosen = sorted(chosen, key=lambda x: rng.random() * FIRST.get(x[0], 1))
    with open(os.path.join(a.out, "more.tsv"), "w") as f:
        for i, (k, s) in enumerate(chosen, len(lines)):
            f.write(f"{i}\t{s}\t{k}\n")
    print(len(chosen), "sentences,", sum(len(toks(s)) for _, s in chosen), "words,", len(set(count) - old_types), "word types that text.tsv has not,",
          sum(1 for w in lower if re.match(r"^[a-z]{3,14}$", w) and count[w] < 3), "of", len([w for w in lower if re.match(r"^[a-z]{3,14}$", w)]), "words of the lists less than three times")


if __name__ == "__main__":
    main()
