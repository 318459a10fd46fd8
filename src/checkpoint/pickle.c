#include "checkpoint/pickle.h"

#include <string.h>

/* Far above real files: a Chatterbox state dict has 2,490 tensors in dicts two deep. */
enum { MAX_STACK = 1 << 16, MAX_MARKS = 256, MAX_MEMO = 1 << 18 };

enum callable { CALL_NOTHING, CALL_ORDERED_DICT, CALL_REBUILD_TENSOR, CALL_REBUILD_PARAMETER };

struct pickle_class {
    const char *module, *name;
    enum callable call;
    bool is_storage;
    enum dtype type;
};

static const struct pickle_class classes[] = {
    {"collections", "OrderedDict", CALL_ORDERED_DICT, false, 0},
    {"torch._utils", "_rebuild_tensor_v2", CALL_REBUILD_TENSOR, false, 0},
    {"torch._utils", "_rebuild_parameter", CALL_REBUILD_PARAMETER, false, 0},
    {"torch", "FloatStorage", CALL_NOTHING, true, DTYPE_F32},
    {"torch", "HalfStorage", CALL_NOTHING, true, DTYPE_F16},
    {"torch", "BFloat16Storage", CALL_NOTHING, true, DTYPE_BF16},
    {"torch", "DoubleStorage", CALL_NOTHING, true, DTYPE_F64},
    {"torch", "LongStorage", CALL_NOTHING, true, DTYPE_I64},
    {"torch", "IntStorage", CALL_NOTHING, true, DTYPE_I32},
};

typedef struct pickle_value value;

struct machine {
    const unsigned char *data;
    size_t n_bytes, at;
    struct arena *memory;
    const char *where;
    struct error *e;
    utter_status status; /* the first failure latches, and then everything reads as nothing */
    value **stack;
    size_t depth;
    size_t marks[MAX_MARKS];
    size_t n_marks;
    value **memo;
    size_t n_memo, memo_capacity;
    value none, scratch; /* stand in for values that are not there after a failure */
};

#define FAIL(m, ...)                                                                                                   \
    do {                                                                                                               \
        if ((m)->status == UTTER_OK) (m)->status = error_set((m)->e, UTTER_MODEL_DAMAGED, __VA_ARGS__);                \
    } while (0)

/* ---- memory and bytes ---- */

static void *allocate(struct machine *m, size_t n_bytes)
{
    void *p = arena_alloc(m->memory, n_bytes);
    if (!p) FAIL(m, "%s: the pickle needs more memory than a dict of tensors would", m->where);
    return p;
}

/* A new value; a scratch one after a failure, so that callers need no test. */
static value *make(struct machine *m, enum pickle_kind kind)
{
    value *v = m->status == UTTER_OK ? allocate(m, sizeof *v) : NULL;
    if (!v) v = &m->scratch;
    *v = (value){.kind = kind};
    return v;
}

/* The next n bytes, NULL when the file ends before. */
static const unsigned char *take(struct machine *m, size_t n)
{
    if (m->status != UTTER_OK) return NULL;
    if (n > m->n_bytes - m->at) {
        FAIL(m, "%s: the pickle ends in the middle of an opcode at byte %zu", m->where, m->at);
        return NULL;
    }
    m->at += n;
    return m->data + m->at - n;
}

static uint64_t take_uint(struct machine *m, size_t n)
{
    const unsigned char *p = take(m, n);
    uint64_t v = 0;
    for (size_t i = 0; p && i < n; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static const char *take_string(struct machine *m, size_t n)
{
    const unsigned char *p = take(m, n);
    char *copy = p ? allocate(m, n + 1) : NULL;
    if (!copy) return "";
    if (memchr(p, 0, n)) FAIL(m, "%s: a string with a NUL inside at byte %zu", m->where, m->at - n);
    memcpy(copy, p, n);
    copy[n] = 0;
    return copy;
}

/* GLOBAL's arguments end at a newline. */
static const char *take_line(struct machine *m)
{
    const unsigned char *end = m->status == UTTER_OK ? memchr(m->data + m->at, '\n', m->n_bytes - m->at) : NULL;
    if (!end) {
        FAIL(m, "%s: the pickle ends inside a name", m->where);
        return "";
    }
    const char *line = take_string(m, (size_t)(end - (m->data + m->at)));
    take(m, 1);
    return line;
}

/* ---- stack, marks, memo ---- */

static void push(struct machine *m, value *v)
{
    if (m->depth == MAX_STACK)
        FAIL(m, "%s: the pickle stacks more than %d values", m->where, MAX_STACK);
    else if (m->status == UTTER_OK)
        m->stack[m->depth++] = v;
}

/* Values below the topmost mark belong to whoever set it. */
static value *pop(struct machine *m)
{
    const size_t floor = m->n_marks ? m->marks[m->n_marks - 1] : 0;
    if (m->depth > floor) return m->stack[--m->depth];
    FAIL(m, "%s: the pickle takes a value that is not there, at byte %zu", m->where, m->at);
    return &m->none;
}

static value *top(struct machine *m)
{
    value *v = pop(m);
    push(m, v);
    return v;
}

/* The values above the topmost mark, which goes; they stay valid until the next push. */
static value **pop_to_mark(struct machine *m, size_t *n)
{
    if (m->n_marks == 0) {
        FAIL(m, "%s: the pickle closes a group that it did not open, at byte %zu", m->where, m->at);
        *n = 0;
        return m->stack;
    }
    const size_t first = m->marks[--m->n_marks];
    *n = m->depth - first;
    m->depth = first;
    return m->stack + first;
}

static void mark(struct machine *m)
{
    if (m->n_marks == MAX_MARKS)
        FAIL(m, "%s: the pickle nests deeper than %d", m->where, MAX_MARKS);
    else
        m->marks[m->n_marks++] = m->depth;
}

static void memo_put(struct machine *m, uint64_t index)
{
    value *v = top(m);
    if (index >= MAX_MEMO) FAIL(m, "%s: the pickle remembers more than %d values", m->where, MAX_MEMO);
    if (m->status != UTTER_OK) return;
    if (index >= m->memo_capacity) {
        size_t capacity = m->memo_capacity ? m->memo_capacity : 256;
        while (capacity <= index) capacity *= 2;
        value **memo = allocate(m, capacity * sizeof *memo);
        if (!memo) return;
        memset(memo, 0, capacity * sizeof *memo);
        if (m->n_memo) memcpy(memo, m->memo, m->n_memo * sizeof *memo);
        m->memo = memo;
        m->memo_capacity = capacity;
    }
    m->memo[index] = v;
    if (index >= m->n_memo) m->n_memo = (size_t)index + 1;
}

static void memo_get(struct machine *m, uint64_t index)
{
    if (index < m->n_memo && m->memo[index])
        push(m, m->memo[index]);
    else
        FAIL(m, "%s: the pickle asks for remembered value %llu, which it never stored", m->where,
             (unsigned long long)index);
}

/* ---- tuples, lists, dicts ---- */

static void append(struct machine *m, value *to, value *const *items, size_t n)
{
    if (m->status != UTTER_OK || n == 0) return;
    if (n > to->as.list.capacity - to->as.list.n) {
        const size_t capacity = 2 * (to->as.list.n + n);
        value **grown = allocate(m, capacity * sizeof *grown);
        if (!grown) return;
        if (to->as.list.n) memcpy(grown, to->as.list.items, to->as.list.n * sizeof *grown);
        to->as.list.items = grown;
        to->as.list.capacity = capacity;
    }
    memcpy(to->as.list.items + to->as.list.n, items, n * sizeof *items);
    to->as.list.n += n;
}

static void push_tuple(struct machine *m, value *const *items, size_t n)
{
    value *tuple = make(m, PICKLE_TUPLE);
    append(m, tuple, items, n);
    push(m, tuple);
}

static void push_small_tuple(struct machine *m, size_t n)
{
    value *items[3] = {&m->none, &m->none, &m->none};
    for (size_t i = n; i-- > 0;) items[i] = pop(m);
    push_tuple(m, items, n);
}

/* Adds items to the list or dict on top of the stack. */
static void append_to_top(struct machine *m, enum pickle_kind kind, value *const *items, size_t n)
{
    value *to = top(m);
    if (to->kind != kind || (kind == PICKLE_DICT && n % 2 != 0))
        FAIL(m, "%s: the pickle adds to what is no %s, at byte %zu", m->where, kind == PICKLE_DICT ? "dict" : "list",
             m->at);
    else
        append(m, to, items, n);
}

static void append_popped(struct machine *m, enum pickle_kind kind, size_t n)
{
    value *items[2] = {&m->none, &m->none};
    for (size_t i = n; i-- > 0;) items[i] = pop(m);
    append_to_top(m, kind, items, n);
}

static void append_marked(struct machine *m, enum pickle_kind kind)
{
    size_t n;
    value **items = pop_to_mark(m, &n);
    append_to_top(m, kind, items, n); /* looks below the items, pushes nothing over them */
}

/* ---- classes ---- */

static void push_class(struct machine *m, const char *module, const char *name)
{
    if (m->status != UTTER_OK) return;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (strcmp(classes[i].module, module) != 0 || strcmp(classes[i].name, name) != 0) continue;
        value *v = make(m, PICKLE_CLASS);
        v->as.class = &classes[i];
        push(m, v);
        return;
    }
    FAIL(m, "%s: the pickle asks for %.100s.%.100s: only tensors are read, nothing is run", m->where, module, name);
}

static void push_stack_class(struct machine *m)
{
    value *name = pop(m), *module = pop(m);
    if (name->kind != PICKLE_STRING || module->kind != PICKLE_STRING)
        FAIL(m, "%s: the pickle names a class by what is no string", m->where);
    else
        push_class(m, module->as.string, name->as.string);
}

static bool is_ints(value *v)
{
    if (v->kind != PICKLE_TUPLE) return false;
    for (size_t i = 0; i < v->as.list.n; i++)
        if (v->as.list.items[i]->kind != PICKLE_INT) return false;
    return true;
}

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks[, metadata]) */
static void push_tensor(struct machine *m, value *const *args, size_t n)
{
    if (n < 6 || args[0]->kind != PICKLE_STORAGE || args[1]->kind != PICKLE_INT || !is_ints(args[2]) ||
        !is_ints(args[3]) || args[2]->as.list.n != args[3]->as.list.n) {
        FAIL(m, "%s: the pickle rebuilds a tensor from unknown arguments, at byte %zu", m->where, m->at);
        return;
    }
    value *v = make(m, PICKLE_TENSOR);
    v->as.tensor.storage = args[0];
    v->as.tensor.offset = args[1]->as.i;
    v->as.tensor.shape = args[2];
    v->as.tensor.stride = args[3];
    push(m, v);
}

static void reduce(struct machine *m)
{
    value *args = pop(m), *f = pop(m);
    const enum callable call = f->kind == PICKLE_CLASS ? f->as.class->call : CALL_NOTHING;
    const size_t n = args->kind == PICKLE_TUPLE ? args->as.list.n : 0;
    if (call == CALL_REBUILD_TENSOR)
        push_tensor(m, args->as.list.items, n);
    else if (call == CALL_REBUILD_PARAMETER && n > 0 && args->as.list.items[0]->kind == PICKLE_TENSOR)
        push(m, args->as.list.items[0]);
    else if (call == CALL_ORDERED_DICT && args->kind == PICKLE_TUPLE && n == 0)
        push(m, make(m, PICKLE_DICT));
    else
        FAIL(m, "%s: the pickle calls what cannot be called, at byte %zu", m->where, m->at);
}

/* An OrderedDict's state (_metadata) is of no use here. */
static void build(struct machine *m)
{
    pop(m);
    if (top(m)->kind != PICKLE_DICT)
        FAIL(m, "%s: the pickle sets the state of what is no dict, at byte %zu", m->where, m->at);
}

/* ('storage', class, key, location, count) */
static void push_storage(struct machine *m)
{
    value *id = pop(m);
    value *const *items = id->as.list.items;
    if (id->kind != PICKLE_TUPLE || id->as.list.n != 5 || items[0]->kind != PICKLE_STRING ||
        strcmp(items[0]->as.string, "storage") != 0 || items[1]->kind != PICKLE_CLASS ||
        !items[1]->as.class->is_storage || items[2]->kind != PICKLE_STRING || items[4]->kind != PICKLE_INT) {
        FAIL(m, "%s: the pickle refers to what is no storage, at byte %zu", m->where, m->at);
        return;
    }
    value *v = make(m, PICKLE_STORAGE);
    v->as.storage.type = items[1]->as.class->type;
    v->as.storage.key = items[2]->as.string;
    v->as.storage.count = items[4]->as.i;
    push(m, v);
}

/* ---- numbers and strings ---- */

static void push_int(struct machine *m, int64_t i)
{
    value *v = make(m, PICKLE_INT);
    v->as.i = i;
    push(m, v);
}

/* Two's complement of up to eight bytes. */
static void push_long(struct machine *m)
{
    const size_t n = (size_t)take_uint(m, 1);
    if (n > 8) {
        FAIL(m, "%s: an integer of %zu bytes at byte %zu", m->where, n, m->at);
        return;
    }
    uint64_t bits = take_uint(m, n);
    if (n > 0 && n < 8 && bits >> (8 * n - 1)) bits |= ~(uint64_t)0 << (8 * n);
    push_int(m, (int64_t)bits);
}

static void push_float(struct machine *m)
{
    uint64_t bits = __builtin_bswap64(take_uint(m, 8)); /* the only big-endian opcode */
    value *v = make(m, PICKLE_FLOAT);
    memcpy(&v->as.f, &bits, sizeof bits);
    push(m, v);
}

static void push_bool(struct machine *m, bool b)
{
    value *v = make(m, PICKLE_BOOL);
    v->as.i = b;
    push(m, v);
}

static void push_string(struct machine *m, size_t n)
{
    const char *text = take_string(m, n);
    value *v = make(m, PICKLE_STRING);
    v->as.string = text;
    push(m, v);
}

/* ---- the loop ---- */

static void run(struct machine *m, unsigned char opcode)
{
    size_t n;
    switch (opcode) {
    case 0x80:
        take(m, 1);
        return; /* PROTO */
    case 0x95:
        take(m, 8);
        return; /* FRAME */
    case '(':
        mark(m);
        return; /* MARK */
    case '}':
        push(m, make(m, PICKLE_DICT));
        return; /* EMPTY_DICT */
    case ']':
        push(m, make(m, PICKLE_LIST));
        return; /* EMPTY_LIST */
    case ')':
        push(m, make(m, PICKLE_TUPLE));
        return; /* EMPTY_TUPLE */
    case 't': { /* TUPLE */
        value **items = pop_to_mark(m, &n);
        push_tuple(m, items, n);
        return;
    }
    case 0x85:
        push_small_tuple(m, 1);
        return; /* TUPLE1 */
    case 0x86:
        push_small_tuple(m, 2);
        return; /* TUPLE2 */
    case 0x87:
        push_small_tuple(m, 3);
        return; /* TUPLE3 */
    case 'a':
        append_popped(m, PICKLE_LIST, 1);
        return; /* APPEND */
    case 'e':
        append_marked(m, PICKLE_LIST);
        return; /* APPENDS */
    case 's':
        append_popped(m, PICKLE_DICT, 2);
        return; /* SETITEM */
    case 'u':
        append_marked(m, PICKLE_DICT);
        return; /* SETITEMS */
    case 'N':
        push(m, make(m, PICKLE_NONE));
        return; /* NONE */
    case 0x88:
        push_bool(m, true);
        return; /* NEWTRUE */
    case 0x89:
        push_bool(m, false);
        return; /* NEWFALSE */
    case 'J':
        push_int(m, (int32_t)take_uint(m, 4));
        return; /* BININT */
    case 'K':
        push_int(m, (int64_t)take_uint(m, 1));
        return; /* BININT1 */
    case 'M':
        push_int(m, (int64_t)take_uint(m, 2));
        return; /* BININT2 */
    case 0x8A:
        push_long(m);
        return; /* LONG1 */
    case 'G':
        push_float(m);
        return; /* BINFLOAT */
    case 'X':
        push_string(m, (size_t)take_uint(m, 4));
        return; /* BINUNICODE */
    case 0x8C:
        push_string(m, (size_t)take_uint(m, 1));
        return; /* SHORT_BINUNICODE */
    case 'q':
        memo_put(m, take_uint(m, 1));
        return; /* BINPUT */
    case 'r':
        memo_put(m, take_uint(m, 4));
        return; /* LONG_BINPUT */
    case 0x94:
        memo_put(m, m->n_memo);
        return; /* MEMOIZE */
    case 'h':
        memo_get(m, take_uint(m, 1));
        return; /* BINGET */
    case 'j':
        memo_get(m, take_uint(m, 4));
        return; /* LONG_BINGET */
    case 'c': { /* GLOBAL */
        const char *module = take_line(m), *name = take_line(m);
        push_class(m, module, name);
        return;
    }
    case 0x93:
        push_stack_class(m);
        return; /* STACK_GLOBAL */
    case 'R':
        reduce(m);
        return; /* REDUCE */
    case 'b':
        build(m);
        return; /* BUILD */
    case 'Q':
        push_storage(m);
        return; /* BINPERSID */
    default:
        FAIL(m, "%s: pickle opcode 0x%02X at byte %zu has no place in a dict of tensors", m->where, opcode, m->at - 1);
    }
}

utter_status pickle_parse(const struct pickle_value **out, struct arena *memory, const unsigned char *data,
                          size_t n_bytes, const char *where, struct error *e)
{
    struct machine m = {.data = data, .n_bytes = n_bytes, .memory = memory, .where = where, .e = e};
    m.stack = allocate(&m, MAX_STACK * sizeof *m.stack);
    while (m.status == UTTER_OK) {
        const unsigned char *opcode = take(&m, 1);
        if (!opcode) break;
        if (*opcode == '.') { /* STOP */
            *out = pop(&m);
            break;
        }
        run(&m, *opcode);
    }
    return m.status;
}
