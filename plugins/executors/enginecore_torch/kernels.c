/* Attention over a paged KV cache, and the small operations of a decoder layer, for CPUs.
 *
 * Compiled for one storage type: float32, or bfloat16 with -DBFLOAT16. Arithmetic is float32.
 *
 * Everything is counted in cells of 32 bits: one float32, or two bfloat16 whose products are summed (one instruction
 * where there is AVX512-BF16). Keys of a block are laid out [head_dim / PACK][slots][PACK], values
 * [slots / PACK][head_dim][PACK], so that 16 slots of keys, or 16 dimensions of values, are one vector load, and
 * scores and outputs are both sums over cells of a broadcast cell times a vector. Slots and head_dim are padded to 16
 * in that place. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
#define GROUPS 8     /* of 16 slots whose scores are taken at a time */
#define TILE_ROWS 64 /* query rows (tokens x heads of a group) of one work item; one token at least */
#ifdef __AVX512F__
#define MAX_ROWS 12 /* accumulators that stay in registers */
#else
#define MAX_ROWS 4
#endif

typedef uint32_t cell;
typedef float floats __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint32_t cells __attribute__((vector_size(4 * LANES), aligned(4)));

static inline float as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline uint32_t as_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

#ifdef BFLOAT16
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif
#define PACK 2
typedef uint16_t elem;

static inline float widen(elem value) { return as_float((uint32_t)value << 16); }

static inline elem narrow(float value) { /* to nearest, ties to even; a NaN stays one */
    uint32_t bits = as_bits(value);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (elem)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
}

static inline floats multiply_add(floats sum, cells a, cells b) {
#ifdef __AVX512BF16__
    return (floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    cells high = (cells){} + 0xffff0000u;
    return sum + (floats)(a << 16) * (floats)(b << 16) + (floats)(a & high) * (floats)(b & high);
#endif
}
#else
#define PACK 1
typedef float elem;

static inline float widen(elem value) { return value; }
static inline elem narrow(float value) { return value; }
static inline floats multiply_add(floats sum, cells a, cells b) { return sum + (floats)a * (floats)b; }
#endif

/* e^x to 2 ulp for x <= 0, and 0 below the smallest normal number; polynomial of Cephes' expf */
static inline float exp_negative(float x) {
    float bounded = x < -87.0f ? -87.0f : x; /* written so that a NaN stays one */
    float shifted = bounded * 1.44269504f + 12582912.0f;
    float whole = shifted - 12582912.0f;
    float rest = bounded - whole * 0.693359375f + whole * 2.12194440e-4f;
    float series = 1.9875691500e-4f;
    series = series * rest + 1.3981999507e-3f;
    series = series * rest + 8.3334519073e-3f;
    series = series * rest + 4.1665795894e-2f;
    series = series * rest + 1.6666665459e-1f;
    series = series * rest + 5.0000001201e-1f;
    series = series * rest * rest + rest + 1.0f;
    float power = as_float((as_bits(shifted) << 23) + 0x3f800000u);
    return x < -87.0f ? 0.0f : series * power;
}

/* -- small operations ---------------------------------------------------------------------------- */

#define PARALLEL_FROM (1 << 15) /* elements; below, waking threads costs more than it saves */

static inline void norm_row(const elem *x, const elem *weight, elem *out, long size, float eps) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (long i = 0; i < size; i++) sum += widen(x[i]) * widen(x[i]);
    float scale = 1.0f / sqrtf(sum / size + eps);
#pragma omp simd
    for (long i = 0; i < size; i++) out[i] = narrow(widen(x[i]) * scale * widen(weight[i]));
}

void rms_norm(const elem *x, const elem *weight, elem *out, long rows, long size, float eps) {
#pragma omp parallel for if (rows * size > PARALLEL_FROM)
    for (long row = 0; row < rows; row++) norm_row(x + row * size, weight, out + row * size, size, eps);
}

void add_rms_norm(const elem *x, elem *residual, const elem *weight, elem *out, long rows, long size, float eps) {
#pragma omp parallel for if (rows * size > PARALLEL_FROM)
    for (long row = 0; row < rows; row++) {
        const elem *add = x + row * size;
        elem *sum = residual + row * size;
#pragma omp simd
        for (long i = 0; i < size; i++) sum[i] = narrow(widen(sum[i]) + widen(add[i]));
        norm_row(sum, weight, out + row * size, size, eps);
    }
}

/* x: [rows, heads, head_dim], stride elements between rows; table: [positions, head_dim], cosines then sines */
void rotate(elem *x, long stride, const int64_t *positions, const float *table, long rows, long heads, long head_dim) {
    long half = head_dim / 2;
#pragma omp parallel for if (rows * heads * head_dim > PARALLEL_FROM)
    for (long row = 0; row < rows; row++) {
        const float *cosine = table + positions[row] * head_dim, *sine = cosine + half;
        for (long head = 0; head < heads; head++) {
            elem *first = x + row * stride + head * head_dim, *second = first + half;
#pragma omp simd
            for (long i = 0; i < half; i++) {
                float a = widen(first[i]), b = widen(second[i]);
                first[i] = narrow(a * cosine[i] - b * sine[i]);
                second[i] = narrow(b * cosine[i] + a * sine[i]);
            }
        }
    }
}

void silu_and_mul(const elem *x, elem *out, long rows, long size) {
#pragma omp parallel for if (rows * size > PARALLEL_FROM)
    for (long row = 0; row < rows; row++) {
        const elem *gate = x + 2 * row * size, *up = gate + size;
        elem *to = out + row * size;
#pragma omp simd
        for (long i = 0; i < size; i++) {
            float value = widen(gate[i]);
            float decay = exp_negative(-fabsf(value)); /* e^-|v|: sigmoid without overflow on either side */
            to[i] = narrow(value * (value < 0 ? decay : 1.0f) / (1.0f + decay) * widen(up[i]));
        }
    }
}

/* -- attention ----------------------------------------------------------------------------------- */

typedef struct {
    long kv_heads, group, head_dim, block_size; /* group: query heads per KV head */
    float scale;
} shape_t;

typedef struct {
    const int32_t *query_starts; /* [requests + 1] */
    const int32_t *seq_lens;     /* [requests] */
    const int32_t *tables;       /* [requests, table_width] */
    const int32_t *tile_request; /* [tiles] */
    const int32_t *tile_start;   /* [tiles]: first token, counted from the request's first in this step */
    long table_width, tiles, parallel;
} step_t;

typedef struct { /* one work item: some tokens of one request, one KV head */
    long tokens, first_token, first_position, rows;
    const int32_t *table;
} tile_t;

static inline long padded(long count) { return (count + LANES - 1) / LANES * LANES; }
static inline long least(long a, long b) { return a < b ? a : b; }

long tile_tokens(const shape_t *shape) { return shape->group < TILE_ROWS ? TILE_ROWS / shape->group : 1; }

/* elements of one block of one KV head */
long key_block_size(const shape_t *shape) { return shape->head_dim * padded(shape->block_size); }
long value_block_size(const shape_t *shape) {
    return padded(shape->head_dim) * ((shape->block_size + PACK - 1) / PACK * PACK);
}

static tile_t get_tile(const shape_t *shape, const step_t *step, long number) {
    long request = step->tile_request[number], start = step->tile_start[number];
    long begin = step->query_starts[request], count = step->query_starts[request + 1] - begin;
    tile_t tile;
    tile.tokens = least(tile_tokens(shape), count - start);
    tile.first_token = begin + start;
    tile.first_position = step->seq_lens[request] - count + start;
    tile.rows = tile.tokens * shape->group;
    tile.table = step->tables + request * step->table_width;
    return tile;
}

static void write_tile(const shape_t *shape, const tile_t *tile, long head, int is_last, const elem *key,
                       const elem *value, long stride, elem *keys, elem *values) {
    long dim = shape->head_dim, size = shape->block_size, slots = padded(size), width = padded(dim);
    for (long token = 0; token < tile->tokens; token++) {
        long position = tile->first_position + token, slot = position % size;
        long block = tile->table[position / size] * shape->kv_heads + head;
        const elem *from = key + (tile->first_token + token) * stride + head * dim;
        elem *to = keys + block * key_block_size(shape) + slot * PACK;
        for (long i = 0; i < dim; i += PACK, to += slots * PACK) memcpy(to, from + i, sizeof(cell));
        from = value + (tile->first_token + token) * stride + head * dim;
        to = values + block * value_block_size(shape) + slot / PACK * width * PACK + slot % PACK;
        for (long i = 0; i < dim; i++) to[i * PACK] = from[i];
        /* the other half of the last cell is read with weight 0, and must not hold an old owner's NaN */
        if (PACK == 2 && is_last && token == tile->tokens - 1 && slot % 2 == 0)
            for (long i = 0; i < dim; i++) to[i * PACK + 1] = 0;
    }
}

/* sums[row] += over `steps` cells: a[row][step] (broadcast) times b[step][0..15] */
static inline __attribute__((always_inline)) void sum_cells(const int rows, floats *sums, const cell *a, long a_stride,
                                                            const cell *b, long b_stride, long steps) {
    for (long step = 0; step < steps; step++) {
        cells column = *(const cells *)(b + step * b_stride);
#pragma GCC unroll 12
        for (int row = 0; row < rows; row++)
            sums[row] = multiply_add(sums[row], (cells){} + a[row * a_stride + step], column);
    }
}

typedef struct { /* 16 slots of one block */
    const cell *keys, *values;
    long first_position, slots; /* slots: how many of the 16 exist */
} group_t;

/* scores[row][0..15] of one group */
static inline __attribute__((always_inline)) void score_rows(const int rows, const cell *query, const group_t *group,
                                                             float *scores, long steps, long stride, float scale) {
    floats sums[MAX_ROWS] = {};
    sum_cells(rows, sums, query, steps, group->keys, stride, steps);
#pragma GCC unroll 12
    for (int row = 0; row < rows; row++) *(floats *)(scores + row * GROUPS * LANES) = sums[row] * scale;
}

/* output[row][0..15] += weights[row] times the values of all groups */
static inline __attribute__((always_inline)) void weigh_rows(const int rows, const cell *weights, const group_t *groups,
                                                             long count, long column, float *output, long width) {
    floats sums[MAX_ROWS];
#pragma GCC unroll 12
    for (int row = 0; row < rows; row++) sums[row] = *(floats *)(output + row * width);
    for (long n = 0; n < count; n++)
        sum_cells(rows, sums, weights + n * LANES / PACK, GROUPS * LANES / PACK, groups[n].values + column, width,
                  (groups[n].slots + PACK - 1) / PACK);
#pragma GCC unroll 12
    for (int row = 0; row < rows; row++) *(floats *)(output + row * width) = sums[row];
}

#define CASE(n, call) \
    case n:           \
        call(n);      \
        break;
#ifdef __AVX512F__
#define FOR_ROWS(rows, call)                                                                         \
    switch (rows) {                                                                                  \
        CASE(1, call) CASE(2, call) CASE(3, call) CASE(4, call) CASE(5, call) CASE(6, call)           \
        CASE(7, call) CASE(8, call) CASE(9, call) CASE(10, call) CASE(11, call) CASE(12, call)        \
    }
#else
#define FOR_ROWS(rows, call) \
    switch (rows) { CASE(1, call) CASE(2, call) CASE(3, call) CASE(4, call) }
#endif

/* One row of a chunk of groups: scores to weights e^(score - maximum), 0 where the row may not look. Keeps the running
 * maximum and sum (online softmax: Milakov and Gimelshein, 2018) and returns by how much earlier weights shrink. */
static float soften(float *scores, elem *weights, const group_t *groups, long count, long position, float *maximum,
                    float *sum) {
    float most = *maximum, total = 0;
    for (long n = 0; n < count; n++) {
        long allowed = least(groups[n].slots, position + 1 - groups[n].first_position);
        float *at = scores + n * LANES;
        if (allowed < LANES)
            for (long i = allowed < 0 ? 0 : allowed; i < LANES; i++) at[i] = -INFINITY;
#pragma omp simd reduction(max : most)
        for (long i = 0; i < LANES; i++) most = at[i] > most ? at[i] : most;
    }
#pragma omp simd reduction(+ : total)
    for (long i = 0; i < count * LANES; i++) {
        float weight = exp_negative(scores[i] - most);
        total += weight;
        weights[i] = narrow(weight);
    }
    float shrink = exp_negative(*maximum - most);
    *maximum = most;
    *sum = *sum * shrink + total;
    return shrink;
}

static void attend_tile(const shape_t *shape, const tile_t *tile, long head, const elem *query, long stride,
                        const elem *keys, const elem *values, elem *out) {
    long dim = shape->head_dim, rows = tile->rows, width = padded(dim), size = shape->block_size, slots = padded(size);
    long per_block = slots / LANES, dim_cells = dim / PACK, heads = shape->kv_heads * shape->group;
    long end = tile->first_position + tile->tokens; /* no row of the tile looks further */
    cell queries[rows * dim_cells];
    float output[rows * width], scores[rows * GROUPS * LANES], maximum[rows], sum[rows];
    cell weights[rows * GROUPS * LANES / PACK];
    for (long row = 0; row < rows; row++) {
        const elem *from = query + (tile->first_token + row / shape->group) * stride;
        memcpy(queries + row * dim_cells, from + (head * shape->group + row % shape->group) * dim, dim * sizeof(elem));
        maximum[row] = -INFINITY;
        sum[row] = 0;
    }
    memset(output, 0, sizeof output);
    long last = (end - 1) / size * per_block + (end - 1) % size / LANES + 1; /* groups up to `end` */
    for (long first = 0; first < last; first += GROUPS) {
        group_t groups[GROUPS];
        long count = least(GROUPS, last - first);
        for (long n = 0; n < count; n++) {
            long block = (first + n) / per_block, part = (first + n) % per_block * LANES;
            long at = tile->table[block] * shape->kv_heads + head;
            groups[n].keys = (const cell *)(keys + at * key_block_size(shape)) + part;
            groups[n].values = (const cell *)(values + at * value_block_size(shape)) + part / PACK * width;
            groups[n].first_position = block * size + part;
            groups[n].slots = least(least(LANES, size - part), end - groups[n].first_position);
        }
        for (long n = 0; n < count; n++)
            for (long row = 0; row < rows; row += MAX_ROWS) {
#define SCORE(r)                                                                                             \
    score_rows(r, queries + row * dim_cells, groups + n, scores + row * GROUPS * LANES + n * LANES, dim_cells, \
               slots, shape->scale)
                FOR_ROWS(least(MAX_ROWS, rows - row), SCORE)
            }
        for (long row = 0; row < rows; row++) {
            float shrink = soften(scores + row * GROUPS * LANES, (elem *)(weights + row * GROUPS * LANES / PACK), groups,
                                  count, tile->first_position + row / shape->group, maximum + row, sum + row);
            if (shrink != 1)
                for (long i = 0; i < width; i++) output[row * width + i] *= shrink;
        }
        for (long column = 0; column < width; column += LANES)
            for (long row = 0; row < rows; row += MAX_ROWS) {
#define WEIGH(r)                                                                                             \
    weigh_rows(r, weights + row * GROUPS * LANES / PACK, groups, count, column, output + row * width + column, width)
                FOR_ROWS(least(MAX_ROWS, rows - row), WEIGH)
            }
    }
    for (long row = 0; row < rows; row++) {
        long token = tile->first_token + row / shape->group;
        elem *to = out + (token * heads + head * shape->group + row % shape->group) * dim;
        float scale = 1.0f / sum[row];
        for (long i = 0; i < dim; i++) to[i] = narrow(output[row * width + i] * scale);
    }
}

/* query: [tokens, heads, head_dim], key and value: [tokens, kv_heads, head_dim], all with `stride` elements between
 * tokens; out: [tokens, heads * head_dim], dense. All keys and values are written before any is read. */
void attention(const shape_t *shape, const step_t *step, const elem *query, const elem *key, const elem *value,
               long stride, elem *keys, elem *values, elem *out) {
    long items = step->tiles * shape->kv_heads;
#pragma omp parallel if (step->parallel)
    {
#pragma omp for
        for (long item = 0; item < items; item++) {
            long number = item / shape->kv_heads;
            tile_t tile = get_tile(shape, step, number);
            int is_last = number + 1 == step->tiles || step->tile_request[number + 1] != step->tile_request[number];
            write_tile(shape, &tile, item % shape->kv_heads, is_last, key, value, stride, keys, values);
        }
        /* late tiles of a prompt look furthest back: they go first */
#pragma omp for schedule(dynamic)
        for (long item = items - 1; item >= 0; item--) {
            tile_t tile = get_tile(shape, step, item / shape->kv_heads);
            attend_tile(shape, &tile, item % shape->kv_heads, query, stride, keys, values, out);
        }
    }
}
