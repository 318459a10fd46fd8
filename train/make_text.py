"""Collect the sentences that the teacher speaks, and those that nothing is trained on.

  python make_text.py --out DIR [--limit 150000] [--more 110000]

Reads what these Debian packages install (any of them may be missing): wordnet-base, fortunes, bible-kjv,
dict-devil, wamerican, miscfiles; the rest is made from templates. Writes DIR/text.tsv ("id<TAB>text<TAB>kind") and
DIR/heldout.tsv (200 sentences of nine kinds, the last column in words) and DIR/dev.tsv (52, for choosing settings), none of whose
sentences is in text.tsv.
"""
import argparse
import collections
import glob
import gzip
import os
import random
import re
import subprocess

ONES = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen").split()
TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
ORD = ("zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
       "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth").split()
MONTHS = ("January February March April May June July August September October November December").split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

# Sentences for the intelligibility test: from the Harvard lists (IEEE 1969), never used in training.
HARVARD = """The birch canoe slid on the smooth planks.
Glue the sheet to the dark blue background.
It is easy to tell the depth of a well.
These days a chicken leg is a rare dish.
Rice is often served in round bowls.
The juice of lemons makes fine punch.
The box was thrown beside the parked truck.
The hogs were fed chopped corn and garbage.
Four hours of steady work faced us.
A large size in stockings is hard to sell.
The boy was there when the sun rose.
A rod is used to catch pink salmon.
The source of the huge river is the clear spring.
Kick the ball straight and follow through.
Help the woman get back to her feet.
A pot of tea helps to pass the evening.
Smoky fires lack flame and heat.
The soft cushion broke the man's fall.
The salt breeze came across from the sea.
The girl at the booth sold fifty bonds.
The small pup gnawed a hole in the sock.
The fish twisted and turned on the bent hook.
Press the pants and sew a button on the vest.
The swan dive was far short of perfect.
The beauty of the view stunned the young boy.
Two blue fish swam in the tank.
Her purse was full of useless trash.
The colt reared and threw the tall rider.
It snowed, rained, and hailed the same morning.
Read verse out loud for pleasure.""".split("\n")


def say(n):
    if n < 20: return ONES[n]
    if n < 100: return TENS[n // 10] + ("-" + ONES[n % 10] if n % 10 else "")
    if n < 1000: return ONES[n // 100] + " hundred" + (" " + say(n % 100) if n % 100 else "")
    if n < 1000000: return say(n // 1000) + " thousand" + (" " + say(n % 1000) if n % 1000 else "")
    return say(n // 1000000) + " million" + (" " + say(n % 1000000) if n % 1000000 else "")


def say_ord(n):
    if n <= 20: return ORD[n]
    if n % 10 == 0: return TENS[n // 10][:-1] + "ieth"
    return TENS[n // 10] + "-" + ORD[n % 10]


def say_year(y):
    if 2000 <= y < 2010: return "two thousand" + (" " + ONES[y - 2000] if y > 2000 else "")
    a, b = divmod(y, 100)
    return say(a) + " " + ("hundred" if b == 0 else ("oh " + ONES[b] if b < 10 else say(b)))


def tidy(s):
    s = re.sub(r"\s+", " ", s).strip()
    if re.search(r'[;()"]', s) and sum(map(ord, s)) % 2:       # half of the texts keep these marks
        s = s.replace("``", '"').replace("''", '"').replace("`", "'").replace("--", ", ").replace(" ,", ",").strip(" ,-'")
        if s.count('"') % 2 == 0 and s.count("(") == s.count(")") and s:
            s = s[0].upper() + s[1:]
            return s if s[-1] in '.!?"' else s + "."
    s = s.replace("``", '"').replace("''", '"').replace("`", "'").replace(";", ",").replace("--", ", ").replace(" ,", ",")
    s = re.sub(r"\((.*?)\)", r", \1,", s)
    s = re.sub(r"[\"*_]", "", s)
    s = re.sub(r"\s+", " ", s).replace(" ,", ",").replace(",,", ",").replace(", .", ".").strip(" ,-'")
    if not s:
        return ""
    s = s[0].upper() + s[1:]
    return s if s[-1] in ".!?" else s + "."


OK = re.compile(r"^[A-Za-z0-9 ,.'!?\-:$%&;()\"/+#]+$")


def good(s, lo=3, hi=26):
    w = s.split()
    return lo <= len(w) <= hi and len(s) <= 190 and bool(OK.match(s)) and max(map(len, w)) <= 18 and \
        sum(c.isupper() for c in s) <= 2 + len(w) // 2 and not re.search(r"[.:]{2,}|[A-Za-z][.:][A-Za-z]{2}|\d{7,}", s)


def wordnet():
    ex, gl = [], []
    for f in sorted(glob.glob("/usr/share/wordnet/data.*")):
        for line in open(f, encoding="latin-1"):
            if "|" not in line:
                continue
            g = line.split("|", 1)[1]
            q = re.findall(r'"([^"]+)"', g)
            ex += [tidy(x) for x in q]
            d = re.sub(r'"[^"]*"?', "", g).split(";")[0]
            gl.append(tidy(d))
    return ex, gl


def sentences(text):
    return [tidy(x) for x in re.split(r"(?<=[.!?])\s+", re.sub(r"\s+", " ", text))]


def fortunes():
    out = []
    for f in sorted(glob.glob("/usr/share/games/fortunes/*")):
        if f.endswith((".dat", ".u8")) or os.path.basename(f) in ("ascii-art", "zippy"):
            continue
        for q in open(f, errors="ignore").read().split("\n%\n"):
            q = re.split(r"\n\s+--", q)[0]
            if re.search(r"[|<>{}\\/=#@^]|\S\s{4,}\S", q):
                continue
            out += sentences(q)
    return out


def bible():
    books = ["gen", "exo", "1sam", "psa", "pro", "ecc", "mat", "mark", "luke", "john", "acts", "rom", "1cor"]
    out = []
    for b in books:
        try:
            t = subprocess.run(["bible", "-f", f"{b}1:1-{b}150:200"], capture_output=True, text=True, timeout=60).stdout
        except (OSError, subprocess.TimeoutExpired):
            return out
        for line in t.split("\n"):
            m = re.match(r"^\S+\d+:\d+ (.*)", line)
            if m:
                out += [tidy(x) for x in re.split(r"[:;]", m.group(1))]
    return out


def devil():
    try:
        t = gzip.open("/usr/share/dictd/devil.dict.dz", "rt", errors="ignore").read()
    except OSError:
        return []
    return sentences(t)


def common_words():
    """Words of WordNet ordered by how often they were seen in tagged text, by part of speech."""
    pos = {"1": "n", "2": "v", "3": "a", "5": "a", "4": "r"}
    seen = {p: {} for p in "nvar"}
    try:
        for line in open("/usr/share/wordnet/cntlist.rev"):
            k, _, n = line.split()
            w, rest = k.split("%")
            p = pos[rest[0]]
            if re.match(r"^[a-z]{2,12}$", w):
                seen[p][w] = seen[p].get(w, 0) + int(n)
    except OSError:
        pass
    return {p: [w for w, _ in sorted(d.items(), key=lambda kv: -kv[1])] for p, d in seen.items()}


def templates(rng, n):
    cw = common_words()
    N = [w for w in cw["n"][:900] if w not in ("person", "group", "location")] or ["house", "river", "table", "machine"]
    A = cw["a"][:400] or ["good", "large", "old", "quiet"]
    try:
        names = [x.strip() for x in gzip.open("/usr/share/dict/propernames.gz", "rt") if x.strip().isalpha()]
    except OSError:
        names = "Alice Robert Maria Kevin Susan George Helen Peter".split()
    place = ("London Paris Berlin Tokyo Boston Chicago Madrid Rome Sydney Toronto Dublin Seattle Denver Moscow Vienna Delhi "
             "Cairo Oslo Prague Texas California Scotland Canada Germany France Japan China India Brazil Mexico").split()
    R, C = rng.randint, rng.choice
    anum = lambda: (lambda k: C([str(k), say(k)]))(C([R(0, 20), R(0, 100), R(100, 999), R(1000, 9999), R(10000, 999999)]))
    def date():
        m, d, y = C(MONTHS), R(1, 28), C([R(1900, 2030), R(1990, 2030)])
        sf = {1: "st", 2: "nd", 3: "rd"}.get(d % 10 if d not in (11, 12, 13) else 0, "th")
        return C([f"{m} {d}{sf}", f"{m} {say_ord(d)}", f"the {say_ord(d)} of {m}", f"{m} {d}{sf}, {y}", f"{m} {say_ord(d)}, {say_year(y)}"])
    def time():
        h, mi = R(1, 12), C([0, 5, 10, 15, 20, 30, 40, 45, 50, R(1, 59)])
        return C([f"{say(h)} o'clock", f"half past {say(h)}", f"{say(h)} {say(mi) if mi > 9 else 'oh ' + say(mi)}" if mi else f"{say(h)} o'clock",
                  f"quarter to {say(h)}", f"{say(h)} in the {C(['morning', 'evening', 'afternoon'])}"])
    def np_():
        return C(["the", "a", "my", "your", "this", "that", "our", "their", "his", "her", "every", "another", "the"]) + " " + \
            C(["", C(A) + " "]) + C(N)
    who = lambda: C(["I", "you", "we", "they", "people", C(names) + " and " + C(names), "the children", "my friends"])
    he = lambda: C(["he", "she", "it", "the teacher", "my brother", "the doctor", C(names), np_()])
    cap = [w.capitalize() for v in cw.values() for w in v[:1500]] + names[:1200] or ["Yes", "No"]
    acr = "FBI CIA NASA USA UK EU UN TV PC CEO DNA GPS USB API HTML PDF FAQ VIP ATM DVD CD AI IT HR BBC CNN IBM NATO NBA PhD MP RSVP SQL CPU GPU URL XML".split()
    vt = "see find need want like know remember forget use buy sell open close move carry watch read write draw build break fix clean bring take leave lose miss love hate follow change choose keep share visit paint cook eat wash send show".split()
    past = "saw found needed wanted liked knew remembered forgot used bought sold opened closed moved carried watched read wrote drew built broke fixed cleaned brought took left lost missed loved followed changed chose kept shared visited painted cooked ate washed sent showed".split()
    adv = "today|tomorrow|yesterday|now|soon|again|every day|at night|in the morning|after dinner|before lunch|next week|last year|on Sunday|as well|very much|quite often|right away|with care|at home|in the city|for a while|all the time|once more|at last".split("|")
    conj = "because|but|and|while|although|so|when|before|after|if|until".split("|")
    T = [
        lambda: f"{C(['Hello', 'Hi', 'Good morning', 'Good evening', 'Good afternoon', 'Hey', 'Welcome'])}{C([', ', '. ', ' '])}{C(names)}{C(['.', '!', ', how are you?', ', nice to meet you.', ', how are you today?', ', thank you for calling.'])}",
        lambda: f"My name is {C(names)}, and I {C(['come from', 'live in', 'was born in', 'work in'])} {C(place)}.",
        lambda: f"{C(['Thank you', 'Thanks', 'Many thanks', 'Thank you very much'])} for {C(['the', 'your'])} {C(N)}{C(['.', ', ' + C(names) + '.', '!'])}",
        lambda: f"{C(['Yes', 'No', 'Well', 'Okay', 'Sure', 'Of course', 'Sorry', 'Please', 'Maybe', 'Oh'])}, {who()} {C(vt)} {np_()}.",
        lambda: f"{C(['Could you', 'Can you', 'Would you', 'Will you', 'Please'])} {C(vt)} {np_()} {C(adv)}?".replace("Please", "Would you please"),
        lambda: f"Please {C(vt)} {np_()} {C(adv)}.",
        lambda: f"{who()} {C(['can', 'will', 'should', 'must', 'may', 'could', 'might', 'would', 'do not', 'did not', 'cannot'])} {C(vt)} {np_()} {C(adv)}.",
        lambda: f"{he()} {C(past)} {np_()} {C(adv)}.",
        lambda: f"{he()} {C(past)} {np_()} {C(conj)} {who()} {C(vt)} {np_()}.",
        lambda: f"{np_()} is {C(['', 'very ', 'not ', 'too ', 'quite ', 'really '])}{C(A)}, {C(conj)} {np_()} is {C(A)}.",
        lambda: f"{C(['Where', 'When', 'Why', 'How'])} {C(['did', 'do', 'will', 'can'])} {C(['you', 'they', 'we'])} {C(vt)} {np_()}?",
        lambda: f"{C(['What', 'Who'])} is {C(['the', 'your', 'this'])} {C(A)} {C(N)}?",
        lambda: f"There {C(['is', 'was'])} {C(['a', 'no', 'one', 'some'])} {C(A)} {C(N)} {C(['in', 'on', 'under', 'near', 'behind', 'beside', 'above', 'between'])} {np_()}.",
        lambda: f"The {C(N)} {C(['starts', 'ends', 'opens', 'closes', 'leaves', 'arrives'])} at {time()}{C(['.', ' on ' + C(DAYS) + '.', ' on ' + date() + '.'])}",
        lambda: f"It is {time()} on {C(DAYS)}, {date()}.",
        lambda: f"Today is {C(DAYS)}, {date()}.",
        lambda: f"{he()} was born on {date()} in {C(place)}.",
        lambda: f"The {C(N)} costs {C(['$' + str(R(1, 999)), say(R(1, 999)) + ' dollars', say(R(2, 99)) + ' cents', say(R(2, 99)) + ' euros'])}.",
        lambda: f"We have {anum()} {C(N)}s and {anum()} {C(N)}s.",
        lambda: f"{C(['The number is', 'Your code is', 'The answer is', 'Count to', 'Turn to page', 'Go to room', 'Take bus number'])} {C([anum(), ' '.join(C(ONES[:10]) for _ in range(R(3, 7)))])}.",
        lambda: f"About {C([str(R(2, 99)) + '%', say(R(2, 99)) + ' percent'])} of {C(['the', 'our', 'all'])} {C(N)}s are {C(A)}.",
        lambda: f"{C(['Turn', 'Keep'])} {C(['left', 'right'])} {C(['at the next corner', 'after the bridge', 'at the traffic light', 'onto Main Street', 'in ' + say(R(2, 9)) + ' hundred ' + C(['feet', 'yards', 'meters'])])}.",
        lambda: f"The temperature {C(['is', 'will be', 'was'])} {anum()} degrees in {C(place)} {C(adv)}.",
        lambda: f"{C(['Mr', 'Mrs', 'Dr', 'Professor', 'Captain'])} {C(names)} {C(past)} {np_()} in {C(place)}.",
        lambda: f"{C(names)}, {C(names)}, and {C(names)} {C(past)} {np_()}.",
        lambda: f"The {C(N)}'s {C(N)} {C(['is', 'was', 'looks', 'seems'])} {C(A)} and {C(A)}.",
        lambda: f"{C(['Yes', 'No', 'Hello', 'Goodbye', 'Okay', 'Thank you', 'Good night', 'See you soon', 'Well done', 'Excuse me', 'I am sorry', 'Welcome back', 'Good luck', 'Stop', 'Go on', 'Wait', 'Listen', 'Help me', 'Come in', 'Not yet', 'Of course'])}{C(['.', '!', '?'])}",
        lambda: f"I {C(['think', 'believe', 'hope', 'know', 'heard', 'am sure'])} that {he()} {C(past)} {np_()}.",
        lambda: f"If {who()} {C(vt)} {np_()}, {who()} will {C(vt)} {np_()}.",
        lambda: f"{C(cap)}{C('.!?,...')}".replace(",", "."),
        lambda: f"{C(cap)} {C(['please', 'now', 'again', 'then', 'indeed', 'too', 'here', 'there'])}{C('.!?')}",
        lambda: f"{C(['Call', 'Dial', 'Text', 'Ring'])} {R(200, 999)}-{R(200, 999)}-{R(1000, 9999)}{C(['.', ' now.', ' for ' + C(names) + '.'])}",
        lambda: f"The {C(N)} {C(['weighs', 'measures', 'needs', 'holds'])} {C([str(R(1, 99)) + '.' + str(R(1, 9)), str(R(2, 400)), say(R(2, 90))])} {C(['kg', 'km', 'cm', 'kilograms', 'miles', 'liters', 'pounds', 'feet', 'inches', 'meters'])}{C(['.', ' ' + C(adv) + '.'])}",
        lambda: f"{C(['Dr.', 'Mr.', 'Mrs.', 'Ms.', 'Prof.', 'St.', 'Capt.'])} {C(names)} {C(past)} {np_()} {C(adv)}.",
        lambda: f"{C(names)} {C(names)} {C(['lives at', 'works at', 'moved to'])} {R(1, 999)} {C(names)} {C(['St.', 'Ave.', 'Street', 'Road', 'Avenue'])}, {C(place)}.",
        lambda: f"{C(['The', 'Our', 'An', 'This'])} {C(acr)} {C(['report', 'office', 'team', 'meeting', 'system', 'file', 'officer'])} {C(['is', 'was', 'looks'])} {C(A)}.",
        lambda: f"{C(['Meet me', 'It starts', 'The train leaves', 'We open', 'Wake me', 'Lunch is'])} at {R(1, 12)}:{R(0, 59):02d}{C(['', ' am', ' pm', ' a.m.', ' p.m.'])} {C(['', 'on ' + C(DAYS), 'tomorrow', 'today'])}.".replace(" .", ".").replace("..", "."),
        lambda: f"On {C([f'{R(1, 12)}/{R(1, 28)}/{R(1990, 2030)}', f'{R(1990, 2030)}-{R(1, 12):02d}-{R(1, 28):02d}', C(MONTHS)[:3] + '. ' + str(R(1, 28)), date()])}, {he()} {C(past)} {np_()}.",
        lambda: f"In {C([str(R(1700, 2030)), 'the ' + str(R(2, 20) * 10 + 1700) + 's', 'chapter ' + str(R(1, 40)), 'room ' + str(R(100, 900))])}, {he()} {C(past)} {np_()}.",
        lambda: f"It costs {C(['$', '$', '$', chr(36)])}{R(1, 999)}.{R(10, 99)}{C(['', ' a month', ' each', ' plus tax'])}.",
        lambda: f"{R(1, 99)},{R(100, 999):03d} {C(N)}s {C(['were', 'are'])} {C(A)}; {R(1, 99)} {C(['were', 'are'])} {C(A)}.",
        lambda: f"{C(['Is', 'Was', 'Are', 'Do', 'Does', 'Did', 'Has', 'Have', 'Should', 'Must', 'May', 'Could', 'Would'])} {who()} {C(vt)} {np_()}{C(['', ' ' + C(adv)])}?",
        lambda: f"{C(['What', 'Which', 'Whose'])} {C(N)} {C(['did', 'do', 'would', 'should'])} {C(['you', 'they', 'we', 'I'])} {C(vt)}{C(['', ' ' + C(adv)])}?",
        lambda: f"{he()} {C(past)} {np_()}, {C(conj)} {who()} {C(['can', 'will', 'could'])} {C(vt)} {np_()} {C(adv)}, {C(conj)} {he()} {C(past)} {np_()} {C(adv)}.",
        lambda: f'"{C(["Come here", "I know", "Wait", "Look at that", "Thank you", "It is late", "Never mind", "Tell me"])}," {C(["he", "she", C(names)])} {C(["said", "whispered", "asked", "answered", "replied"])}.',
        lambda: f"{C(['Yes', 'No', 'Well', 'Oh', 'Right', 'Okay', 'Hmm', 'Sure'])}{C([', ', '. ', '! '])}{C(names)}{C(['.', '!', '?'])}",
        lambda: f"{C(['I', 'We', 'You', 'They', C(names)])} {C(['don', 'didn', 'won', 'wouldn', 'couldn', 'shouldn', 'can'])}'t {C(vt)} {np_()}{C(['', ' ' + C(adv)])}{C(['.', '.', '?', '!'])}",
        lambda: f"{C(['First', 'Second', 'Third', 'Next', 'Then', 'Finally', 'However', 'Therefore', 'Meanwhile', 'In fact', 'For example', 'Of course', 'After all'])}, {he()} {C(past)} {np_()}.",
        lambda: f"This is {C(['a test', 'a sample', 'an example', 'the voice', 'the sound'])} of {C(['the', 'our', 'a'])} {C(['', C(A) + ' '])}{C(['speech', 'voice', 'text', C(N)])} {C(['engine', 'system', 'model', 'program', 'machine', C(N)])}.",
    ]
    return [tidy(C(T)()) for _ in range(n)]


COMMON_NAMES = """Mary Patricia Jennifer Linda Elizabeth Barbara Susan Jessica Sarah Karen Lisa Nancy Betty Sandra Margaret Ashley Kimberly Emily Donna
Michelle Carol Amanda Melissa Deborah Stephanie Rebecca Laura Sharon Cynthia Dorothy Amy Kathleen Angela Shirley Emma Brenda Pamela Nicole Anna
Samantha Katherine Christine Debra Rachel Carolyn Janet Maria Olivia Heather Helen Catherine Diane Julie Victoria Joyce Lauren Kelly Christina Ruth
Joan Virginia Judith Evelyn Hannah Andrea Megan Cheryl Jacqueline Madison Teresa Abigail Sophia Martha Sara Gloria Janice Kathryn Ann Isabella Judy
Charlotte Julia Grace Amber Alice Jean Denise Frances Danielle Marilyn Natalie Beverly Diana Brittany Theresa Kayla Alexis Doris Lori Tiffany Rose
Lucy Ellen Claire Irene Clara Edith Nora Eva Sylvia Molly Eleanor Audrey Jane Holly Paula Monica Wendy Sally Harriet Phoebe Zoe Chloe Mia Ella Lily
James Michael Robert John David William Richard Joseph Thomas Christopher Charles Daniel Matthew Anthony Mark Donald Steven Andrew Paul Joshua
Kenneth Kevin Brian Timothy Ronald George Jason Edward Jeffrey Ryan Jacob Nicholas Gary Eric Jonathan Stephen Larry Justin Scott Brandon Benjamin
Samuel Gregory Alexander Patrick Frank Raymond Jack Dennis Jerry Tyler Aaron Jose Adam Nathan Henry Zachary Douglas Peter Kyle Noah Ethan Jeremy
Christian Walter Keith Austin Roger Terry Sean Gerald Carl Dylan Harold Jordan Jesse Bryan Lawrence Arthur Gabriel Bruce Logan Albert Willie Alan
Eugene Russell Vincent Philip Bobby Johnny Bradley Simon Oliver Hugo Leo Max Felix Martin Oscar Ralph Fred Stanley Leonard Howard Victor Ian Colin
Graham Neil Stuart Duncan Malcolm Trevor Nigel Hector Isaac Elijah Lucas Mason Liam""".split()     # given names that people will want said right


def named(rng, n):
    """Common given names at every place of a sentence: propernames of the other templates has a thousand, each of them seldom."""
    R, C = rng.randint, rng.choice
    cw = common_words()
    N, V = [w for w in cw["n"][:900] if not w.endswith("s")] or ["house", "river"], ["saw", "found", "bought", "sold", "lost", "liked", "wanted", "painted", "carried", "forgot", "mended", "described"]
    A = cw["a"][:400] or ["good", "large"]
    who, place = lambda: C(COMMON_NAMES), lambda: C("London Paris Berlin Tokyo Boston Chicago Madrid Rome Sydney Toronto Dublin Seattle Denver Vienna Cairo Oslo Prague Texas Canada Spain Ireland".split())
    go = lambda: C(["went", "ran", "drove", "came back", "moved", "travelled", "wrote", "returned"])
    T = [
        lambda: f"{who()} {C(V)} the {C(A)} {C(N)}{C(['.', '.', ' yesterday.', ' and left.', ', but ' + who() + ' did not.'])}",
        lambda: f"{who()} and {who()} {go()} to {C(['the ' + C(N), place(), 'a ' + C(N) + ' in ' + place()])}.",
        lambda: f"{C(['Yesterday', 'This morning', 'In the end', 'Last week', 'For once', 'Because of the ' + C(N)])}, {who()} {C(V)} {who()}'s {C(N)}.",
        lambda: f"{C(['I think', 'They say', 'We heard', 'Tell me', 'She hopes', 'He knows'])} {C(['', 'that '])}{who()} {C(['will', 'should', 'can', 'may', 'must'])} {C(['help', 'call', 'meet', 'thank', 'trust', 'follow'])} {who()}.",
        lambda: f"{C(['Where', 'When', 'Why', 'How'])} did {who()} {C(['meet', 'leave', 'find', 'teach', 'help'])} {who()}?",
        lambda: f"{C(['You', 'He', 'She', 'We', 'They', 'I'])}'ll {C(['see', 'meet', 'hear from', 'sit beside', 'work with', 'miss'])} {who()} {C(['tomorrow', 'soon', 'again', 'in ' + place(), 'at the ' + C(N)])}.",
        lambda: f"{who()}'s {C(N)} {C(['is', 'was', 'looks', 'seems'])} {C(A)}, {C(['said', 'thought', 'wrote'])} {who()}.",
        lambda: f"{C(['Dear', 'Hello', 'Thank you,', 'Well,', 'Please,', 'Goodbye,'])} {who()}{C(['.', ', come in.', ', please wait.', ', this is ' + who() + '.'])}",
        lambda: f"{who()}, {who()}, {C(['and', 'or'])} {who()} {C(['can have', 'will take', 'gave us', 'promised to bring', 'promise to keep'])} the {C(N)}.",
    ]
    return [tidy(C(T)()) for _ in range(n)]


def figures(rng, n):
    """Numbers, prices, dates, times and measures in figures, as people write them."""
    R, C = rng.randint, rng.choice
    cw = common_words()
    N = [w for w in cw["n"][:900] if not w.endswith("s")] or ["house", "river", "table", "machine"]
    num = lambda: C([str(R(0, 12)), str(R(10, 99)), str(R(10, 99)), str(R(100, 999)), str(R(100, 999)), str(R(1000, 9999)), f"{R(1, 999)},{R(0, 999):03d}", f"{R(0, 99)}.{R(0, 9)}"])
    price = lambda: "$" + C([str(R(1, 99)), f"{R(0, 9)}.{R(0, 99):02d}", f"{R(10, 99)}.{R(0, 99):02d}", f"{R(10, 99)}.{R(0, 99):02d}", f"{R(100, 999)}.{R(0, 99):02d}", f"{R(1, 99)},{R(0, 999):03d}"])
    def date():
        m, d, y = C(MONTHS), R(1, 31), C([R(1700, 2040), R(1990, 2035)])
        sf = {1: "st", 2: "nd", 3: "rd"}.get(d % 10 if d not in (11, 12, 13) else 0, "th")
        return C([f"{m} {d}{sf}, {y}", f"{m} {d}{sf}", f"{m} {d}, {y}", f"{d} {m} {y}", f"the {d}{sf} of {m}, {y}", f"the {d}{sf} of {m}", f"{m} {y}"])
    time = lambda: f"{R(1, 12)}:{R(0, 59):02d}" + C(["", "", "", " am", " pm", " a.m.", " p.m."])
    unit = lambda: C(["kg", "km", "cm", "mm", "percent", "miles", "hours", "minutes", "seconds", "pounds", "feet", "inches", "meters", "degrees", "years", "dollars", "pages", "people"])
    T = [
        lambda: f"{C(['There are', 'I saw', 'She sold', 'We need', 'He found', 'They built', 'You have'])} {num()} {C(N)}s and {num()} {C(N)}s.",
        lambda: f"{C(['The', 'This', 'A', 'Each', 'Her'])} {C(N)} {C(['cost', 'costs', 'is worth', 'was sold for', 'comes to'])} {price()}{C(['.', ' today.', ' altogether.', ' per ' + C(N) + '.'])}",
        lambda: f"{C(['Pay', 'Send', 'I paid', 'She owes', 'They asked for', 'He saved'])} {price()} {C(['and', 'or', 'for the ' + C(N) + ', not'])} {price()}.",
        lambda: f"{C(['The', 'Our', 'Their'])} {C(N)} {C(['opens', 'began', 'ended', 'closes', 'was built', 'was signed', 'happened'])} on {date()}.",
        lambda: f"{C(['From', 'Between'])} {date()} {C(['to', 'and'])} {date()}, {C(['the', 'every'])} {C(N)} {C(['was closed', 'changed', 'stayed the same'])}.",
        lambda: f"{C(['The', 'My', 'Our', 'Your'])} {C(N)} {C(['starts', 'left', 'leaves', 'ends', 'comes', 'was'])} at {time()} on {C(DAYS)}.".replace("..", "."),
        lambda: f"{C(['Call', 'Meet', 'Wake', 'Ask'])} {C(['me', 'us', 'them', 'her'])} {C(['at', 'before', 'after'])} {time()} or {time()}.".replace("..", "."),
        lambda: f"{C(['It', 'The ' + C(N), 'This ' + C(N)])} {C(['is', 'was', 'takes', 'weighs', 'measures'])} {num()} {unit()}{C(['.', ' long.', ' more.', ' in all.'])}",
        lambda: f"{C(['About', 'Only', 'Over', 'Nearly', 'Exactly'])} {num()}% of the {C(N)}s {C(['are', 'were'])} {C(['new', 'old', 'full', 'closed', 'gone', 'red', 'blue'])}.",
        lambda: f"{C(['Chapter', 'Page', 'Room', 'Section', 'Line', 'Question', 'Flight', 'Number', 'Version'])} {C([num(), str(R(1, 99)), str(R(1, 9)) + '.' + str(R(0, 20))])} {C(['is about', 'comes after', 'shows', 'has'])} the {C(N)}.",
        lambda: f"{C(['In', 'Before', 'After', 'Since', 'By'])} {R(1500, 2040)}, {C(['the', 'every', 'no'])} {C(N)} {C(['was', 'had been'])} {C(['rare', 'lost', 'known', 'common', 'sold'])}.",
        lambda: f"{num()} {C(['plus', 'minus', 'times', 'and', 'or', 'of'])} {num()} {C(['is', 'makes', 'equals'])} {num()}.",
        lambda: f"{C(['The', 'His', 'Her', 'My'])} {R(1, 40)}{C(['th'])} {C(N)} {C(['was', 'is'])} {C(['the best', 'too late', 'quite good'])}.".replace("1th", "1st").replace("2th", "2nd").replace("3th", "3rd").replace("11st", "11th").replace("12nd", "12th").replace("13rd", "13th"),
        lambda: f"{C(['Dr.', 'Mr.', 'Mrs.', 'Ms.', 'Prof.', 'St.'])} {C(['Brown', 'Hill', 'Green', 'Smith', 'Jones', 'Miller', 'Young', 'King', 'White', 'Clark'])} {C(['teaches', 'works', 'lives', 'calls', 'arrives', 'sleeps'])} {C(['at', 'until', 'after'])} {time()}.".replace("..", "."),
        lambda: f"The {C('FBI CIA NASA USA UK EU UN TV PC CEO DNA GPS USB API PDF ATM DVD CD AI IT HR BBC CNN IBM NBA SQL CPU URL XML'.split())} {C(N)} {C(['and', 'or', 'near'])} the {C('FBI CIA NASA USA UK EU UN TV PC CEO DNA GPS USB API PDF ATM DVD CD AI IT HR BBC CNN IBM NBA SQL CPU URL XML'.split())} {C(N)} {C(['failed', 'works', 'is new', 'came back', 'moved'])}.",
        lambda: f"{C(['She', 'He', 'My friend', 'Mr. King'])} {C(['lives', 'lived', 'works'])} at {R(1, 999)} {C(['Oak', 'Main', 'Park', 'Hill', 'Lake', 'King', 'Church', 'Mill', 'Elm'])} {C(['St.', 'Ave.', 'Street', 'Road', 'Avenue', 'Lane'])}{C([' in ' + str(R(1950, 2030)) + '.', ' for ' + str(R(2, 30)) + ' years.', ' now.'])}",
    ]
    return [tidy(C(T)()) for _ in range(n)]


def word_lists(rng, n):
    try:
        words = [w.strip() for w in open("/usr/share/dict/american-english") if re.match(r"^[a-z]{2,13}$", w.strip())]
    except OSError:
        return []
    freq = sum((v[:4000] for v in common_words().values()), [])
    out = []
    for _ in range(n):
        k = rng.randint(3, 8)
        ws = [rng.choice(words) if rng.random() < 0.7 or not freq else rng.choice(freq) for _ in range(k)]
        out.append(tidy((", " if rng.random() < 0.4 else " ").join(ws)))
    return out


def coverage(rng, counts, total):
    """Lists of words with small words between them, so that each word of English stands in the text as often as the cube
    root of its use asks for: `counts` is how often it stands there already, `total` how many words may be added. Known words come too."""
    from wordfreq import zipf_frequency
    words = {}
    for w in sorted(x.strip() for x in open("/usr/share/dict/american-english")):
        if re.match(r"^[A-Za-z][a-z]{1,14}$", w) and (w.islower() or w.lower() not in words):
            words[w.lower()] = w
    use = {k: 10 ** (zipf_frequency(k, "en") / 3) for k in words if zipf_frequency(k, "en") > 1.5}
    need = lambda f, k: max(min(2, use[k] / 10), f * use[k] - 3 - counts.get(k, 0))
    lo, hi = 0.0, 10.0
    for _ in range(40):                                    # the factor that spends the total
        mid = (lo + hi) / 2
        lo, hi = (mid, hi) if sum(need(mid, k) for k in use) < total else (lo, mid)
    bag = [words[k] for k in use for _ in range(int(need(lo, k) + rng.random()))]
    rng.shuffle(bag)
    small = ["the", "a", "of the", "in the", "and", "and the", "to", "for", "with", "or", "is", "are", "on", "at a", "from", "his", "her", "their", "was", "by"]
    out, k = [], 0
    while k < len(bag):
        n = rng.choice([3, 4, 5, 5, 6, 6, 7])
        ws, s = bag[k:k + n], rng.choice(["", "", "The ", "A ", "My ", "This ", "Some ", "No ", "She said ", "They saw "])
        for i, w in enumerate(ws):
            s += w + (rng.choice(".....?!") if i == len(ws) - 1 else rng.choice([" ", " ", ", ", f" {rng.choice(small)} ", f" {rng.choice(small)} "]))
        out.append(s[0].upper() + s[1:])
        k += n
    return out


def joined(rng, rows, n):
    """Long sentences: two or three shorter ones with a conjunction or a semicolon between them."""
    base = [r[1] for r in rows if 5 <= len(r[1].split()) <= 14 and r[1].endswith(".") and not re.search(r'["()]', r[1])]
    out = []
    for _ in range(n if base else 0):
        k = rng.choice([2, 2, 3])
        ps = [rng.choice(base)[:-1] for _ in range(k)]
        s = ps[0]
        for p in ps[1:]:
            c = rng.choice([", and ", ", but ", "; ", ", so ", ", while ", ", because ", ": ", ", or "])
            s += c + (p if p.split()[0] in ("I",) or rng.random() < 0.0 else p[0].lower() + p[1:])
        out.append(s + ".")
    return out


def heldout(rng, spare):
    """200 sentences of ten kinds: (text, kind, the same in words)."""
    R, C, out = rng.randint, rng.choice, []
    names = "Alice Robert Maria Kevin Susan George Helen Peter Daniel Laura Henry Emma".split()
    add = lambda kind, text, words=None: out.append((text, kind, words or text))
    for t in HARVARD:
        add("harvard", t)
    for t in spare["plain"][:60]:
        add("plain", t)
    for _ in range(12):
        n, m = R(21, 999), R(2, 99)
        add("number", f"They counted {n} birds and {m} boats.", f"They counted {say(n)} birds and {say(m)} boats.")
    for _ in range(8):
        n, c = R(2, 90), R(11, 99)
        add("number", f"The ticket costs ${n}.{c} in total.", f"The ticket costs {say(n)} dollars and {say(c)} cents in total.")
    for _ in range(10):
        d, y, m = R(1, 28), R(2010, 2029), C(MONTHS)
        sf = {1: "st", 2: "nd", 3: "rd"}.get(d % 10 if d not in (11, 12, 13) else 0, "th")
        add("date", f"The school will open on {m} {d}{sf}, {y}.", f"The school will open on {m} {say_ord(d)} {say_year(y)}.")
    for _ in range(6):
        h, k = R(1, 12), R(11, 59)
        add("date", f"The bus leaves at {h}:{k} on {C(DAYS)}.", f"The bus leaves at {say(h)} {say(k)} on {out and DAYS[0]}.")
        text = out[-1][0]
        out[-1] = (text, "date", re.sub(r"\d+:\d+", f"{say(h)} {say(k)}", text))
    for k in range(12):
        a, b = rng.sample(names, 2)
        add("name", f"{a} and {b} walked to the {C(['station', 'market', 'library', 'harbor', 'garden'])} in {C(['London', 'Boston', 'Paris', 'Chicago', 'Dublin', 'Seattle'])}.")
    for text, words in (("Dr. Brown will see you now.", "Doctor Brown will see you now."), ("Mr. Hill and Mrs. Hill are away.", "Mister Hill and Missus Hill are away."),
                        ("The box weighs 12 kg.", "The box weighs twelve kilograms."), ("It is 5 km to the lake.", "It is five kilometers to the lake."),
                        ("About 45% of the seats are empty.", "About forty five percent of the seats are empty."), ("The CEO came on TV last night.", "The C E O came on T V last night."),
                        ("The FBI opened a new office.", "The F B I opened a new office."), ("Prof. Green teaches at 9 a.m. on Friday.", "Professor Green teaches at nine A M on Friday."),
                        ("St. John lived at 14 Oak Ave. for years.", "Saint John lived at fourteen Oak Avenue for years."), ("The USB cable is behind the PC.", "The U S B cable is behind the P C.")):
        add("abbreviation", text, words)
    for t in ("Where did you leave the keys?", "How long will it take to get there?", "Would you like some more tea?", "Is this the right way to the airport?", "Why is the sky so dark today?",
              "Who wrote the letter on the table?", "What time does the library close?", "Can you hear me now?", "Did they ever find the missing dog?", "Are you coming with us tonight?",
              "Which road should we take?", "Do you remember my name?", "Have you finished your homework?", "Should I call the doctor again?", "When does the next train arrive?"):
        add("question", t)
    for t in ("Yes.", "No.", "Hello!", "Stop!", "Really?", "Wonderful.", "Tomorrow.", "Please.", "Goodbye.", "Seven.", "Water.", "Elephant.", "Careful!", "Sorry.", "Exactly.", "Yesterday?", "Music."):
        add("word", t)
    for t in spare["long"][:20]:
        add("long", t)
    return out[:200]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    ap.add_argument("--limit", type=int, default=150000)
    ap.add_argument("--more", type=int, default=122000, help="sentences beyond the first choice: other glosses and verses, figures, word lists")
    ap.add_argument("--coverage", type=int, default=0, help="only add coverage.tsv to what is there: so many words that text.tsv has too seldom")
    a = ap.parse_args()
    if a.coverage:
        lines = [l.split("\t") for l in open(os.path.join(a.out, "text.tsv"))]
        counts = collections.Counter(w for l in lines for w in re.findall(r"[a-z]+", l[1].lower()))
        with open(os.path.join(a.out, "coverage.tsv"), "w") as f:
            for i, s in enumerate(coverage(random.Random(17), counts, a.coverage), len(lines)):
                f.write(f"{i}\t{s}\tcoverage\n")
        return
    rng = random.Random(7)
    ex, gl = wordnet()
    pools = [("wn-example", ex, 60000), ("fortune", fortunes(), 20000), ("devil", devil(), 4000), ("bible", bible(), 10000),
             ("template", templates(rng, 52000), 38000), ("words", word_lists(rng, 11000), 8000), ("wn-gloss", gl, 22000)]
    held = {re.sub(r"[^a-z0-9 ]", "", t.lower()) for t, _, _ in heldout(random.Random(11), dict(plain=[], long=[]))}
    seen, rows, spare, more = set(held), [], dict(plain=[], long=[]), []
    for name, pool, cap in pools:
        rng.shuffle(pool)
        kept = []
        for s in pool:
            key = re.sub(r"[^a-z0-9 ]", "", s.lower())
            if key in seen or not good(s, 1 if name == "template" else 3):
                continue
            seen.add(key)
            kept.append(s)
        if name in ("wn-example", "fortune"):
            easy = lambda s, lo, hi: lo <= len(s.split()) <= hi and not re.search(r"[0-9$%&;()\"/+#]", s)
            plain = [s for s in kept if easy(s, 6, 14)][:150]
            long = [s for s in kept if easy(s, 18, 26)][:60]
            spare["plain"] += plain
            spare["long"] += long
            drop = set(plain) | set(long)
            kept = [s for s in kept if s not in drop]
        print(f"{name}: {len(pool)} found, {len(kept)} usable, {min(cap, len(kept))} kept")
        rows += [(name, s) for s in kept[:cap]]
        more += [(name, s) for s in kept[cap:]]
    long = [s for s in joined(rng, rows, 9000) if len(s) < 330][:8000]
    rows += [("long", s) for s in long]
    rng.shuffle(rows)
    rows = rows[:a.limit]
    os.makedirs(a.out, exist_ok=True)
    with open(os.path.join(a.out, "text.tsv"), "w") as f:
        for i, (k, s) in enumerate(rows):
            f.write(f"{i}\t{s}\t{k}\n")
    rng.shuffle(spare["plain"])
    rng.shuffle(spare["long"])
    h = heldout(random.Random(11), spare)
    with open(os.path.join(a.out, "heldout.tsv"), "w") as f:
        for i, (t, k, w) in enumerate(h):
            f.write(f"h{i}\t{t}\t{k}\t{w}\n")
    with open(os.path.join(a.out, "dev.tsv"), "w") as f:       # for choosing settings: neither trained on nor held out for the judgement
        for i, (t, k) in enumerate([(t, "plain") for t in spare["plain"][60:100]] + [(t, "long") for t in spare["long"][20:32]]):
            f.write(f"d{i}\t{t}\t{k}\t{t}\n")
    extra = random.Random(15)
    for name, pool in (("figures", figures(random.Random(13), 20000)), ("words", word_lists(random.Random(14), 12000)),
                       ("names", named(random.Random(16), 16000))):
        for s in pool:
            key = re.sub(r"[^a-z0-9 $:.%]", "", s.lower())
            if key not in seen and good(s):
                seen.add(key)
                more.append((name, s))
    keep = [x for x in more if x[0] in ("figures", "words", "names")]
    rest = [x for x in more if x[0] not in ("figures", "words", "names")]
    extra.shuffle(rest)
    more = (keep + rest)[:a.more]
    more += [("long", s) for s in joined(extra, more, 8000) if len(s) < 330]
    extra.shuffle(more)
    rows += more
    with open(os.path.join(a.out, "text.tsv"), "a") as f:
        for i, (k, s) in enumerate(more, len(rows) - len(more)):
            f.write(f"{i}\t{s}\t{k}\n")
    w = [x for _, s in rows for x in re.findall(r"[a-z']+", s.lower())]
    print(len(rows), "sentences", len(w), "words", len(set(w)), "different", sum(len(s) for _, s in rows), "characters;", len(h), "held out")


if __name__ == "__main__":
    main()
