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
#define GROUPS 16              /* of 16 slots whose scores are taken at a time; a multiple of VECTORS */
#define COLUMNS (GROUPS * LANES)
#define TILE_ROWS 48 /* query rows (tokens x heads of a group) of one work item; one token at least */
#define MAX_ROWS 6   /* rows x vectors of sums stay in registers: 24 of AVX-512's 32 */
#define VECTORS 4

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

/* sums[row][n] += over `steps` cells: a[row][step] (broadcast) times b[n][step][0..15] */
static inline __attribute__((always_inline)) void sum_cells(const int rows, const int vectors, floats sums[][VECTORS],
                                                            const cell *a, long a_stride, const cell *const *b,
                                                            long b_stride, long steps) {
    for (long step = 0; step < steps; step++) {
        cells columns[VECTORS];
#pragma GCC unroll 4
        for (int n = 0; n < vectors; n++) columns[n] = *(const cells *)(b[n] + step * b_stride);
#pragma GCC unroll 6
        for (int row = 0; row < rows; row++) {
            cells broadcast = (cells){} + a[row * a_stride + step];
#pragma GCC unroll 4
            for (int n = 0; n < vectors; n++) sums[row][n] = multiply_add(sums[row][n], broadcast, columns[n]);
        }
    }
}

typedef struct { /* up to GROUPS groups of 16 slots: where they are, and which positions they hold */
    const cell *keys[GROUPS], *values[GROUPS];
    long first_position[GROUPS], slots[GROUPS]; /* slots: how many of the 16 may be looked at */
    long count;
} chunk_t;

/* scores[row][0..63] of VECTORS groups */
static inline __attribute__((always_inline)) void score_rows(const int rows, const cell *query, long steps,
                                                             const cell *const *keys, long stride, float scale,
                                                             float *scores) {
    floats sums[MAX_ROWS][VECTORS] = {};
    sum_cells(rows, VECTORS, sums, query, steps, keys, stride, steps);
#pragma GCC unroll 6
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 4
        for (int n = 0; n < VECTORS; n++)
            *(floats *)(scores + row * COLUMNS + n * LANES) = sums[row][n] * scale;
}

/* output[row][0..16 vectors - 1] += weights[row] times the values of a chunk */
static inline __attribute__((always_inline)) void weigh_rows(const int rows, const int vectors, const cell *weights,
                                                             const chunk_t *chunk, long column, long width,
                                                             float *output) {
    floats sums[MAX_ROWS][VECTORS];
#pragma GCC unroll 6
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 4
        for (int n = 0; n < vectors; n++) sums[row][n] = *(floats *)(output + row * width + n * LANES);
    for (long group = 0; group < chunk->count; group++) {
        const cell *columns[VECTORS];
        for (int n = 0; n < vectors; n++) columns[n] = chunk->values[group] + column + n * LANES;
        sum_cells(rows, vectors, sums, weights + group * LANES / PACK, COLUMNS / PACK, columns, width,
                  (chunk->slots[group] + PACK - 1) / PACK);
    }
#pragma GCC unroll 6
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 4
        for (int n = 0; n < vectors; n++) *(floats *)(output + row * width + n * LANES) = sums[row][n];
}

/* the loops over rows and vectors unroll only where their counts are constants */
#define FOR_ROWS(count, call)                                                                      \
    switch (count) {                                                                               \
    case 1: call(1); break;                                                                        \
    case 2: call(2); break;                                                                        \
    case 3: call(3); break;                                                                        \
    case 4: call(4); break;                                                                        \
    case 5: call(5); break;                                                                        \
    default: call(6);                                                                              \
    }

static void score_chunk(const shape_t *shape, const chunk_t *chunk, long rows, const cell *query, float *scores) {
    long steps = shape->head_dim / PACK, stride = padded(shape->block_size);
    for (long group = 0; group < chunk->count; group += VECTORS)
        for (long row = 0; row < rows; row += MAX_ROWS) {
            const cell *from = query + row * steps;
            float *to = scores + row * COLUMNS + group * LANES;
#define CALL(r) score_rows(r, from, steps, chunk->keys + group, stride, shape->scale, to)
            FOR_ROWS(rows - row, CALL)
#undef CALL
        }
}

static void weigh_chunk(const chunk_t *chunk, long rows, long width, const cell *weights, float *output) {
    for (long row = 0; row < rows; row += MAX_ROWS) {
        const cell *from = weights + row * COLUMNS / PACK;
        long column = 0;
        for (; column + VECTORS * LANES <= width; column += VECTORS * LANES) {
            float *to = output + row * width + column;
#define CALL(r) weigh_rows(r, VECTORS, from, chunk, column, width, to)
            FOR_ROWS(rows - row, CALL)
#undef CALL
        }
        for (; column < width; column += LANES) {
            float *to = output + row * width + column;
#define CALL(r) weigh_rows(r, 1, from, chunk, column, width, to)
            FOR_ROWS(rows - row, CALL)
#undef CALL
        }
    }
}

/* One row of a chunk: scores to weights e^(score - maximum), 0 where the row may not look. Keeps the running maximum
 * and sum (online softmax: Milakov and Gimelshein, 2018) and returns by how much earlier weights shrink. */
static float soften(const chunk_t *chunk, long position, float *scores, elem *weights, float *maximum, float *sum) {
    float most = *maximum, total = 0;
    for (long group = 0; group < chunk->count; group++) {
        long allowed = least(chunk->slots[group], position + 1 - chunk->first_position[group]);
        float *at = scores + group * LANES;
        for (long i = allowed < 0 ? 0 : allowed; i < LANES; i++) at[i] = -INFINITY;
    }
#pragma omp simd reduction(max : most)
    for (long i = 0; i < chunk->count * LANES; i++) most = scores[i] > most ? scores[i] : most;
#pragma omp simd reduction(+ : total)
    for (long i = 0; i < chunk->count * LANES; i++) {
        float weight = exp_negative(scores[i] - most);
        total += weight;
        weights[i] = narrow(weight);
    }
    float shrink = exp_negative(*maximum - most);
    *maximum = most;
    *sum = *sum * shrink + total;
    return shrink;
}

/* Groups `first` and on, up to the position `end`; filled up to whole VECTORS with groups that are not read. */
static void get_chunk(const shape_t *shape, const tile_t *tile, long head, const elem *keys, const elem *values,
                      long first, long end, chunk_t *chunk) {
    long size = shape->block_size, per_block = padded(size) / LANES;
    chunk->count = 0;
    for (long number = first; chunk->count < GROUPS; number++) {
        long block = number / per_block, part = number % per_block * LANES, n = chunk->count;
        int exists = block * size + part < end;
        if (!exists && n % VECTORS == 0) return;
        if (exists) {
            long at = tile->table[block] * shape->kv_heads + head;
            chunk->keys[n] = (const cell *)(keys + at * key_block_size(shape)) + part;
            chunk->values[n] = (const cell *)(values + at * value_block_size(shape)) + part / PACK * padded(shape->head_dim);
        } else {
            chunk->keys[n] = chunk->keys[n - 1];
            chunk->values[n] = chunk->values[n - 1];
        }
        chunk->first_position[n] = block * size + part;
        chunk->slots[n] = exists ? least(least(LANES, size - part), end - chunk->first_position[n]) : 0;
        chunk->count++;
    }
}

static void attend_tile(const shape_t *shape, const tile_t *tile, long head, const elem *query, long stride,
                        const elem *keys, const elem *values, elem *out) {
    long dim = shape->head_dim, rows = tile->rows, width = padded(dim), group = shape->group;
    long end = tile->first_position + tile->tokens; /* no row of the tile looks further */
    cell queries[rows * dim / PACK], weights[rows * COLUMNS / PACK];
    float output[rows * width], scores[rows * COLUMNS], maximum[rows], sum[rows];
    for (long row = 0; row < rows; row++) {
        const elem *from = query + (tile->first_token + row / group) * stride + (head * group + row % group) * dim;
        memcpy(queries + row * dim / PACK, from, dim * sizeof(elem));
        maximum[row] = -INFINITY;
        sum[row] = 0;
    }
    memset(output, 0, sizeof output);
    chunk_t chunk;
    for (long first = 0;; first += GROUPS) {
        get_chunk(shape, tile, head, keys, values, first, end, &chunk);
        if (!chunk.count) break;
        score_chunk(shape, &chunk, rows, queries, scores);
        for (long row = 0; row < rows; row++) {
            float shrink = soften(&chunk, tile->first_position + row / group, scores + row * COLUMNS,
                                  (elem *)(weights + row * COLUMNS / PACK), maximum + row, sum + row);
            if (shrink != 1)
                for (long i = 0; i < width; i++) output[row * width + i] *= shrink;
        }
        weigh_chunk(&chunk, rows, width, weights, output);
    }
    for (long row = 0; row < rows; row++) {
        elem *to = out + ((tile->first_token + row / group) * shape->kv_heads * group + head * group + row % group) * dim;
        float scale = 1.0f / sum[row];
        for (long i = 0; i < dim; i++) to[i] = narrow(output[row * width + i] * scale);
    }
}

/* query: [tokens, heads, head_dim], key and value: [tokens, kv_heads, head_dim], with `query_stride` and `kv_stride`
 * elements between tokens; out: [tokens, heads * head_dim], dense. All keys and values are written before any is read. */
void attention(const shape_t *shape, const step_t *step, const elem *query, const elem *key, const elem *value,
               long query_stride, long kv_stride, elem *keys, elem *values, elem *out) {
    long items = step->tiles * shape->kv_heads;
#pragma omp parallel if (step->parallel)
    {
#pragma omp for
        for (long item = 0; item < items; item++) {
            long number = item / shape->kv_heads;
            tile_t tile = get_tile(shape, step, number);
            int is_last = number + 1 == step->tiles || step->tile_request[number + 1] != step->tile_request[number];
            write_tile(shape, &tile, item % shape->kv_heads, is_last, key, value, kv_stride, keys, values);
        }
        /* late tiles of a prompt look furthest back: they go first */
#pragma omp for schedule(dynamic)
        for (long item = items - 1; item >= 0; item--) {
            tile_t tile = get_tile(shape, step, item / shape->kv_heads);
            attend_tile(shape, &tile, item % shape->kv_heads, query, query_stride, keys, values, out);
        }
    }
}
