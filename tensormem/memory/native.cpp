// The loop of the fused scan on a CPU.
//
// A thread takes a sequence through all its steps, so that the state and what a step makes of it stay in that core's
// cache, and memory is touched only by what is kept for the backward pass. Products of matrices are held in registers
// until they are through the activations that follow them.
//
// V points of the grid, C channels. Volumes are channels-last. Channels are padded to whole vectors; a volume is
// (V, blocks) vectors. `mixed`, what meets in the pointwise map, is (V, 2, blocks) vectors: write half, hidden half.
// Gates i, f, o, g lie side by side for each block: (V, blocks, 4) vectors.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kRegisters = 32;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32, kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kVectorBytes = 16, kRegisters = 32;
#else
constexpr int kVectorBytes = 16, kRegisters = 16;
#endif

constexpr int kMaxAxes = 6;
// Rows of a volume whose gradients are taken together, a multiple of every tile's rows.
constexpr int64_t kRowsTogether = 96;

using Index = int64_t;

template <typename T>
struct VectorOf;
template <>
struct VectorOf<float> {
    typedef float type __attribute__((vector_size(kVectorBytes)));
};
template <>
struct VectorOf<double> {
    typedef double type __attribute__((vector_size(kVectorBytes)));
};

template <typename T>
constexpr int kLanes = kVectorBytes / sizeof(T);

enum Saving : Index { kNone, kFull, kLight, kCheckpoint };
// Where the gates of a step go: nowhere, to what is read again at once, to what is read after all steps.
enum class Gates { kLost, kHere, kKept };

}  // namespace

// native.py fills these in; the names and the order are the same there.
struct Sizes {
    Index batch, steps, reads, channels, axes, threads, saving, block_length, hard, channels_first;
    Index grid[kMaxAxes];
};

template <typename T>
struct Arrays {
    // What goes in, C padded to whole vectors: coordinates (B, R or S, n), content (B, S, C), sigma (B, S), positions
    // of the points along each axis (N_1 + ... + N_n), taps (n, 3, 2, C) and their bias (n, 2, C), both null where
    // nothing is mixed, weight (4, C, 2, C) and bias (4, C).
    const T *read_coordinates, *write_coordinates, *content, *sigma, *positions, *taps, *taps_bias, *weight, *bias;
    // The state before the first step, (B, V, C) or, channels_first, (B, C, V); that after the last, (B, V, C); what
    // was read, (B, R, C).
    const T *first_h, *first_c;
    T *last_h, *last_c, *reads;
    // What is kept: for each state that is, the address of (B, V, ...).
    T *const *kept_h, *const *kept_c, *const *kept_gates, *const *kept_squashed_c;
    // Backward: the gradients of what came out, and of what went in.
    const T *grad_reads, *grad_last_h, *grad_last_c;
    T *grad_h, *grad_c, *grad_read_coordinates, *grad_write_coordinates, *grad_content, *grad_sigma, *grad_taps;
    T *grad_taps_bias, *grad_weight, *grad_bias;
    // Room for so many values as scratch_size says.
    T *scratch;
};

namespace {

template <typename T>
using Vector = typename VectorOf<T>::type;

// Not 0 + value: that is an addition, since it makes 0 of -0, and value - 0 is none.
template <typename V, typename T>
inline V splat(T value) {
    return static_cast<decltype(V{}[0] + 0)>(value) - V{};
}

// The 13/6 rational function of Eigen and XLA, to a few units in the last place. What is no number stays none.
inline VectorOf<float>::type tanh_of(VectorOf<float>::type x) {
    using V = VectorOf<float>::type;
    const V most = splat<V>(7.90531110763549805f);
    x = x > most ? most : x;
    x = x < -most ? -most : x;
    const V square = x * x;
    V above = splat<V>(-2.76076847742355e-16f) * square + 2.00018790482477e-13f;
    above = above * square - 8.60467152213735e-11f;
    above = above * square + 5.12229709037114e-08f;
    above = above * square + 1.48572235717979e-05f;
    above = above * square + 6.37261928935456e-04f;
    above = above * square + 4.89352455891786e-03f;
    V below = splat<V>(1.19825839466702e-06f) * square + 1.18534705686654e-04f;
    below = below * square + 2.26843463243900e-03f;
    below = below * square + 4.89352518554385e-03f;
    return x * above / below;
}

inline VectorOf<double>::type tanh_of(VectorOf<double>::type x) {
    for (int lane = 0; lane < kLanes<double>; ++lane) x[lane] = std::tanh(x[lane]);
    return x;
}

template <typename V>
inline V sigmoid_of(V x) {
    return tanh_of(x * 0.5f) * 0.5f + 0.5f;
}

// Has a value in a register from here on: where registers are few, GCC reads it anew for each product that it is in.
template <typename V>
inline __attribute__((always_inline)) void hold(V &value) {
#if defined(__AVX__) && !defined(__AVX512F__)
    asm("" : "+x"(value));
#endif
}

// A matrix of scalars: entry [row][k] lies row * by_row + k * by_inner behind the start.
template <typename T>
struct Left {
    const T *start;
    Index by_row, by_inner;
};

// result[row][column] += left[row][:] times right[:][column], whose rows lie right_stride vectors apart.
template <int kRows, int kColumns, typename T, typename V>
inline __attribute__((always_inline)) void multiply(
    Left<T> left, const V *right, Index right_stride, Index inner, V (&result)[kRows][kColumns]) {
    V sums[kRows][kColumns];
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 16
        for (int column = 0; column < kColumns; ++column) sums[row][column] = result[row][column];
    }
    for (Index k = 0; k < inner; ++k) {
        const T *values = left.start + k * left.by_inner;
        const V *columns = right + k * right_stride;
        // The fewer of the two are held in registers beside the sums.
        if constexpr (kRows < kColumns) {
            V held[kRows];
#pragma GCC unroll 16
            for (int row = 0; row < kRows; ++row) {
                held[row] = splat<V>(values[row * left.by_row]);
                hold(held[row]);
            }
#pragma GCC unroll 16
            for (int column = 0; column < kColumns; ++column) {
                V at = columns[column];
                hold(at);
#pragma GCC unroll 16
                for (int row = 0; row < kRows; ++row) sums[row][column] += held[row] * at;
            }
        } else {
            V held[kColumns];
#pragma GCC unroll 16
            for (int column = 0; column < kColumns; ++column) held[column] = columns[column];
#pragma GCC unroll 16
            for (int row = 0; row < kRows; ++row) {
                const V value = splat<V>(values[row * left.by_row]);
#pragma GCC unroll 16
                for (int column = 0; column < kColumns; ++column) sums[row][column] += value * held[column];
            }
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 16
        for (int column = 0; column < kColumns; ++column) result[row][column] = sums[row][column];
    }
}

// Calls tile<rows>(first row) over [first, last), in tiles of at most kRows.
template <int kRows, typename Tile>
inline __attribute__((always_inline)) void in_tiles(Index first, Index last, Tile &&tile) {
    for (; first + kRows <= last; first += kRows) tile.template operator()<kRows>(first);
    if constexpr (kRows > 1) in_tiles<(kRows > 8 ? 8 : kRows > 4 ? 4 : kRows > 2 ? 2 : 1)>(first, last, tile);
}

// Past the caches: what is written is not read again before they are full of other things.
template <typename V>
inline void stream(V *to, V value) {
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i *>(to), reinterpret_cast<__m512i>(value));
#elif defined(__AVX__)
    _mm256_stream_si256(reinterpret_cast<__m256i *>(to), reinterpret_cast<__m256i>(value));
#else
    *to = value;
#endif
}

// Other threads see what was streamed.
inline void finish_streams() {
#if defined(__AVX__)
    _mm_sfence();
#endif
}

// Hands out pieces of the scratch; given none, it counts.
template <typename V>
struct Room {
    V *start;
    Index taken = 0;

    V *take(Index count) {
        V *piece = start ? start + taken : nullptr;
        taken += count;
        return piece;
    }
};

template <typename T>
inline T sum_of(Vector<T> x) {
    T sum = 0;
    for (int lane = 0; lane < kLanes<T>; ++lane) sum += x[lane];
    return sum;
}

// What all threads share: sizes, and the parameters as the loop wants them.
template <typename T>
class Setup {
    using V = Vector<T>;

public:
    const Sizes &sizes;
    const Arrays<T> &arrays;
    const Index axes, channels, blocks;
    const bool backward;
    Index points = 1, num_factors = 0, corners, last, start_of[kMaxAxes];
    // Vectors of a panel of the backward product.
    Index panel;
    // (blocks, 2C, 4) and (blocks, 4); (panels, 4C, panel).
    V *weight, *bias, *weight_backward;
    // The response of the depthwise stack to nothing, axis by axis: (N_1, ..., N_a, 2, blocks).
    V *bias_levels[kMaxAxes + 1], *bias_volume;

    Setup(const Sizes &sizes, const Arrays<T> &arrays, bool backward, Room<V> &room)
        : sizes(sizes),
          arrays(arrays),
          axes(sizes.axes),
          channels(sizes.channels),
          blocks(sizes.channels / kLanes<T>),
          backward(backward),
          corners(Index{1} << sizes.axes),
          last(sizes.grid[sizes.axes - 1]),
          panel(blocks % 2 ? 2 : 4) {
        bias_levels[0] = room.take(2 * blocks);
        for (Index axis = 0; axis < axes; ++axis) {
            start_of[axis] = num_factors;
            num_factors += sizes.grid[axis];
            points *= sizes.grid[axis];
            bias_levels[axis + 1] = room.take(2 * points * blocks);
        }
        bias_volume = bias_levels[axes];
        weight = room.take(8 * channels * blocks);
        bias = room.take(4 * blocks);
        weight_backward = backward ? room.take(8 * channels * blocks) : nullptr;
    }

    const V *taps(Index axis) const {
        return arrays.taps ? reinterpret_cast<const V *>(arrays.taps) + 6 * axis * blocks : nullptr;
    }

    // Of a place of an axis: the taps that lie in range there, summed.
    V taps_in_range(Index axis, Index place, Index i) const {
        const V *tap = taps(axis);
        V sum = tap[2 * blocks + i];
        if (place > 0) sum += tap[i];
        if (place < sizes.grid[axis] - 1) sum += tap[4 * blocks + i];
        return sum;
    }

    void prepare() {
        constexpr int lanes = kLanes<T>;
        T *to = reinterpret_cast<T *>(weight), *to_bias = reinterpret_cast<T *>(bias);
        T *to_backward = reinterpret_cast<T *>(weight_backward);
        const Index panel_width = panel * lanes;
        for (Index gate = 0; gate < 4; ++gate) {
            for (Index channel = 0; channel < channels; ++channel) {
                const Index block = channel / lanes, lane = channel % lanes, output = (4 * block + gate) * lanes + lane;
                const T *row = arrays.weight + (gate * channels + channel) * 2 * channels;
                for (Index input = 0; input < 2 * channels; ++input) {
                    to[((block * 2 * channels + input) * 4 + gate) * lanes + lane] = row[input];
                    if (backward) {
                        const Index at = input / panel_width * 4 * channels + output;
                        to_backward[at * panel_width + input % panel_width] = row[input];
                    }
                }
                to_bias[output] = arrays.bias[gate * channels + channel];
            }
        }
        if (!arrays.taps) {
            std::fill_n(bias_volume, 2 * points * blocks, V{});
            return;
        }
        std::fill_n(bias_levels[0], 2 * blocks, V{});
        for (Index axis = 0, rows = 1; axis < axes; rows *= sizes.grid[axis++]) {
            const V *axis_bias = reinterpret_cast<const V *>(arrays.taps_bias) + 2 * axis * blocks;
            for (Index row = 0; row < rows * sizes.grid[axis]; ++row) {
                const Index place = row % sizes.grid[axis];
                const V *before = bias_levels[axis] + row / sizes.grid[axis] * 2 * blocks;
                for (Index i = 0; i < 2 * blocks; ++i) {
                    bias_levels[axis + 1][row * 2 * blocks + i] =
                        before[i] * taps_in_range(axis, place, i) + axis_bias[i];
                }
            }
        }
    }

    // From the gradient of the bias volume, which is written over, those of the taps and of their bias, which are
    // added.
    void bias_volume_backward(V *grad) const {
        V *grad_taps = reinterpret_cast<V *>(arrays.grad_taps), *grad_bias = reinterpret_cast<V *>(arrays.grad_taps_bias);
        Index rows = points;
        for (Index axis = axes - 1; axis >= 0; --axis) {
            const Index places = sizes.grid[axis];
            rows /= places;
            V *to = grad_taps + 6 * axis * blocks, *to_bias = grad_bias + 2 * axis * blocks;
            for (Index row = 0; row < rows; ++row) {
                for (Index i = 0; i < 2 * blocks; ++i) {
                    const V before = bias_levels[axis][row * 2 * blocks + i];
                    V sum{};
                    for (Index place = 0; place < places; ++place) {
                        const V value = grad[(row * places + place) * 2 * blocks + i], product = value * before;
                        to_bias[i] += value;
                        if (place > 0) to[i] += product;
                        to[2 * blocks + i] += product;
                        if (place < places - 1) to[4 * blocks + i] += product;
                        sum += value * taps_in_range(axis, place, i);
                    }
                    // What was at this place has been taken: row <= row * places.
                    grad[row * 2 * blocks + i] = sum;
                }
            }
        }
    }
};

template <typename T>
class Worker {
    using V = Vector<T>;
    static constexpr int kWidth = kLanes<T>;
    // Rows of the tiles that four and two vectors wide products are held in.
    static constexpr int kRows4 = kRegisters >= 32 ? 6 : 3, kRows2 = kRegisters >= 32 ? 12 : 6;

    const Setup<T> &setup_;
    const Sizes &sizes_;
    const Arrays<T> &arrays_;
    const Index axes_, points_, blocks_, last_, channels_, num_factors_;
    V *mixed_, *grad_mixed_, *grad_pre_, *zeros_, *prefixes_[kMaxAxes], *rests_[2], *chain_[kMaxAxes], *grads_[2];
    V *h_, *c_, *gates_, *squashed_;
    // Of the step at hand: the write's factors with the content and the first axis's without it, and their gradients.
    V *factors_, *first_factor_, *grad_factors_;
    // The write along each axis before it is mixed, with a zero before it and behind it.
    T *profile_;

public:
    // Sums over sequences and steps: (4C, 2, blocks), (V, 2, blocks), (blocks, 4), (n, 3, 2, blocks).
    V *total_weight, *total_mixed, *total_bias, *total_taps;
    Index num_totals;

    explicit Worker(const Setup<T> &setup)
        : setup_(setup),
          sizes_(setup.sizes),
          arrays_(setup.arrays),
          axes_(setup.axes),
          points_(setup.points),
          blocks_(setup.blocks),
          last_(setup.last),
          channels_(setup.channels),
          num_factors_(setup.num_factors) {}

    // Takes its pieces of the room.
    void claim(Room<V> &room) {
        const Index volume = points_ * blocks_;
        mixed_ = room.take(2 * volume);
        zeros_ = room.take(2 * points_ / sizes_.grid[0] * blocks_);
        for (Index axis = 0, rows = 1; axis < axes_; rows *= sizes_.grid[axis++]) {
            prefixes_[axis] = room.take(rows * blocks_);
        }
        for (Index axis = 0; axis < axes_ - 1; ++axis) chain_[axis] = room.take(volume);
        factors_ = room.take(num_factors_ * blocks_);
        first_factor_ = room.take(sizes_.grid[0] * blocks_);
        profile_ = reinterpret_cast<T *>(room.take((num_factors_ + 2 * axes_ + kWidth - 1) / kWidth));
        const bool again = setup_.backward && sizes_.saving == kCheckpoint;
        // Without a history the state is here and is written over.
        h_ = room.take((again ? sizes_.block_length : 1) * volume);
        c_ = room.take((again ? sizes_.block_length : 1) * volume);
        if (!setup_.backward) return;
        gates_ = room.take(again ? 4 * sizes_.block_length * volume : 0);
        squashed_ = room.take(again ? sizes_.block_length * volume : 0);
        grad_mixed_ = room.take(2 * volume);
        grad_pre_ = room.take(4 * kRowsTogether * blocks_);
        grad_factors_ = room.take(num_factors_ * blocks_);
        for (auto &rest : rests_) rest = room.take(points_ / last_ * blocks_);
        for (auto &grads : grads_) grads = room.take(volume);
        total_weight = room.take(8 * channels_ * blocks_);
        total_mixed = room.take(2 * volume);
        total_bias = room.take(4 * blocks_);
        total_taps = room.take(6 * axes_ * blocks_);
        num_totals = 8 * channels_ * blocks_ + 2 * volume + 4 * blocks_ + 6 * axes_ * blocks_;
    }

    void prepare() {
        std::fill_n(zeros_, 2 * points_ / sizes_.grid[0] * blocks_, V{});
        std::fill_n(prefixes_[0], blocks_, splat<V>(1));
        std::fill_n(profile_, num_factors_ + 2 * axes_, T{});
        if (setup_.backward) std::fill_n(total_weight, num_totals, V{});
    }

    void forward(Index sequence) {
        const Index volume_size = points_ * blocks_, start = sequence * volume_size, steps = sizes_.steps;
        V *last_h = vectors(arrays_.last_h) + start, *last_c = vectors(arrays_.last_c) + start;
        const bool every = sizes_.saving == kFull || sizes_.saving == kLight;
        V *h = steps == 0 ? last_h : every ? volume(arrays_.kept_h, 0, sequence) : h_;
        V *c = steps == 0 ? last_c : every ? volume(arrays_.kept_c, 0, sequence) : c_;
        load(arrays_.first_h, sequence, h);
        load(arrays_.first_c, sequence, c);
        for (Index step = 0; step < steps; ++step) {
            if (sizes_.saving == kCheckpoint && step % sizes_.block_length == 0) {
                const Index state = step / sizes_.block_length;
                std::copy_n(h, volume_size, volume(arrays_.kept_h, state, sequence));
                std::copy_n(c, volume_size, volume(arrays_.kept_c, state, sequence));
            }
            read(h, step, sequence);
            V *next_h = h_, *next_c = c_;
            if (step == steps - 1) {
                next_h = last_h, next_c = last_c;
            } else if (every) {
                next_h = volume(arrays_.kept_h, step + 1, sequence);
                next_c = volume(arrays_.kept_c, step + 1, sequence);
            }
            prepare_write(step, sequence);
            mix(h);
            if (sizes_.saving == kFull) {
                V *gates = volume(arrays_.kept_gates, step, sequence, 4);
                update<Gates::kKept>(c, next_h, next_c, gates, volume(arrays_.kept_squashed_c, step, sequence));
            } else {
                update<Gates::kLost>(c, next_h, next_c, nullptr, nullptr);
            }
            h = next_h, c = next_c;
        }
        if (sizes_.reads > steps) read(last_h, steps, sequence);
        finish_streams();
    }

    void backward(Index sequence) {
        const Index volume_size = points_ * blocks_, start = sequence * volume_size, steps = sizes_.steps;
        V *grad_h = vectors(arrays_.grad_h) + start, *grad_c = vectors(arrays_.grad_c) + start;
        std::copy_n(vectors(arrays_.grad_last_h) + start, volume_size, grad_h);
        std::copy_n(vectors(arrays_.grad_last_c) + start, volume_size, grad_c);
        if (sizes_.reads > steps) {
            read_backward(vectors(arrays_.last_h) + start, grad_h, steps, sequence);
        }
        if (sizes_.saving == kCheckpoint) {
            const Index length = sizes_.block_length;
            for (Index state = (steps + length - 1) / length - 1; state >= 0; --state) {
                const Index first = state * length, count = std::min(length, steps - first);
                run_again(first, count, state, sequence);
                for (Index place = count - 1; place >= 0; --place) {
                    const Index at = place * volume_size;
                    step_backward<true>(
                        first + place, sequence, h_ + at, c_ + at, gates_ + 4 * at, squashed_ + at, grad_h, grad_c);
                }
            }
            return;
        }
        for (Index step = steps - 1; step >= 0; --step) {
            const V *h = volume(arrays_.kept_h, step, sequence), *c = volume(arrays_.kept_c, step, sequence);
            if (sizes_.saving == kFull) {
                const V *gates = volume(arrays_.kept_gates, step, sequence, 4);
                const V *squashed = volume(arrays_.kept_squashed_c, step, sequence);
                step_backward<true>(step, sequence, h, c, gates, squashed, grad_h, grad_c);
            } else {
                step_backward<false>(step, sequence, h, c, nullptr, nullptr, grad_h, grad_c);
            }
        }
    }

private:
    static const V *vectors(const T *values) { return reinterpret_cast<const V *>(values); }
    static V *vectors(T *values) { return reinterpret_cast<V *>(values); }

    // The volumes of a sequence in what is kept of a state.
    V *volume(T *const *kept, Index state, Index sequence, Index width = 1) const {
        return vectors(kept[state]) + sequence * points_ * blocks_ * width;
    }

    // A sequence's volume, laid out as it is here.
    void load(const T *volumes, Index sequence, V *to) const {
        const T *from = volumes + sequence * points_ * channels_;
        if (!sizes_.channels_first) {
            std::copy_n(vectors(from), points_ * blocks_, to);
            return;
        }
        for (Index point = 0; point < points_; ++point) {
            for (Index block = 0; block < blocks_; ++block) {
                V values;
                for (int lane = 0; lane < kWidth; ++lane) values[lane] = from[(block * kWidth + lane) * points_ + point];
                to[point * blocks_ + block] = values;
            }
        }
    }

    // The steps from a state that was kept, with all that they go through.
    void run_again(Index first, Index count, Index state, Index sequence) {
        const Index volume_size = points_ * blocks_;
        std::copy_n(volume(arrays_.kept_h, state, sequence), volume_size, h_);
        std::copy_n(volume(arrays_.kept_c, state, sequence), volume_size, c_);
        for (Index place = 0; place < count; ++place) {
            const Index at = place * volume_size;
            // The state after the block is not needed: it goes where nothing else is yet.
            const bool last = place == count - 1;
            V *next_h = last ? grads_[0] : h_ + at + volume_size, *next_c = last ? grads_[1] : c_ + at + volume_size;
            prepare_write(first + place, sequence);
            mix(h_ + at);
            update<Gates::kHere>(c_ + at, next_h, next_c, gates_ + 4 * at, squashed_ + at);
        }
    }

    // The 2^n points around a coordinate and the weights of an n-linear read, the last axis fastest; for each axis the
    // weight of its upper point and how that grows with the coordinate, which at the border and beyond it is 0.
    struct Corners {
        Index rows[1 << kMaxAxes];
        T weights[1 << kMaxAxes], upper[kMaxAxes], slope[kMaxAxes];
    };

    Corners corners_of(Index place, Index sequence) const {
        Corners found;
        found.rows[0] = 0;
        found.weights[0] = 1;
        const T *coordinate = arrays_.read_coordinates + (sequence * sizes_.reads + place) * axes_;
        Index stride = points_;
        for (Index axis = 0, count = 1; axis < axes_; ++axis, count *= 2) {
            stride /= sizes_.grid[axis];
            const T last = sizes_.grid[axis] - 1;
            T position = (coordinate[axis] + 1) * (last / 2);
            found.slope[axis] = position > 0 && position < last ? last / 2 : 0;
            position = position < 0 ? 0 : position > last ? last : position;
            // What is no number makes no row: it must reach the weights, and only them.
            const T lower = position != position ? 0 : std::min(std::floor(position), last - 1);
            found.upper[axis] = position - lower;
            for (Index corner = count - 1; corner >= 0; --corner) {
                const Index row = found.rows[corner] + static_cast<Index>(lower) * stride;
                const T weight = found.weights[corner];
                found.rows[2 * corner] = row;
                found.rows[2 * corner + 1] = row + stride;
                found.weights[2 * corner] = weight * (1 - found.upper[axis]);
                found.weights[2 * corner + 1] = weight * found.upper[axis];
            }
        }
        return found;
    }

    void read(const V *h, Index place, Index sequence) {
        const Corners found = corners_of(place, sequence);
        V *out = vectors(arrays_.reads) + (sequence * sizes_.reads + place) * blocks_;
        for (Index block = 0; block < blocks_; ++block) {
            V sum{};
            for (Index corner = 0; corner < setup_.corners; ++corner) {
                sum += h[found.rows[corner] * blocks_ + block] * found.weights[corner];
            }
            out[block] = sum;
        }
    }

    void read_backward(const V *h, V *grad_h, Index place, Index sequence) {
        const Corners found = corners_of(place, sequence);
        const Index at = sequence * sizes_.reads + place;
        const V *grad = vectors(arrays_.grad_reads) + at * blocks_;
        T sums[kMaxAxes] = {};
        for (Index corner = 0; corner < setup_.corners; ++corner) {
            const Index row = found.rows[corner] * blocks_;
            V products{};
            for (Index block = 0; block < blocks_; ++block) {
                products += h[row + block] * grad[block];
                grad_h[row + block] += grad[block] * found.weights[corner];
            }
            const T grad_weight = sum_of<T>(products);
            for (Index axis = 0; axis < axes_; ++axis) {
                T others = grad_weight;
                for (Index other = 0; other < axes_; ++other) {
                    const bool is_upper = corner >> (axes_ - 1 - other) & 1;
                    if (other == axis) {
                        others = is_upper ? others : -others;
                    } else {
                        others *= is_upper ? found.upper[other] : 1 - found.upper[other];
                    }
                }
                sums[axis] += others;
            }
        }
        for (Index axis = 0; axis < axes_; ++axis) {
            // Not a product alone: at the border nothing flows, whatever it is.
            arrays_.grad_read_coordinates[at * axes_ + axis] = found.slope[axis] > 0 ? sums[axis] * found.slope[axis] : 0;
        }
    }

    T *profile(Index axis) const { return profile_ + setup_.start_of[axis] + 2 * axis + 1; }

    // The write of a step, mixed: one factor for each axis, the first times the content.
    void prepare_write(Index step, Index sequence) {
        const Index at = sequence * sizes_.steps + step;
        const T *coordinate = arrays_.write_coordinates + at * axes_, *positions = arrays_.positions;
        const T sigma = arrays_.sigma[at], width = 2 * sigma * sigma + T(1e-6);
        const V *content = vectors(arrays_.content) + at * blocks_;
        for (Index axis = 0; axis < axes_; ++axis) {
            const Index places = sizes_.grid[axis];
            T *values = profile(axis);
            if (sizes_.hard) {
                const T last = places - 1;
                T position = std::nearbyint((coordinate[axis] + 1) * (last / 2));
                position = position > 0 ? std::min(position, last) : 0;
                for (Index place = 0; place < places; ++place) values[place] = place == static_cast<Index>(position);
            } else {
                for (Index place = 0; place < places; ++place) {
                    const T offset = positions[setup_.start_of[axis] + place] - coordinate[axis];
                    values[place] = std::exp(offset * offset / -width);
                }
            }
            const V *taps = setup_.taps(axis);
            V *out = factors_ + setup_.start_of[axis] * blocks_;
            for (Index place = 0; place < places; ++place) {
                for (Index block = 0; block < blocks_; ++block) {
                    V value = splat<V>(values[place]);
                    if (taps) {
                        value = value * taps[2 * blocks_ + block] + taps[block] * values[place - 1] +
                                taps[4 * blocks_ + block] * values[place + 1];
                    }
                    if (axis == 0) {
                        first_factor_[place * blocks_ + block] = value;
                        value *= content[block];
                    }
                    out[place * blocks_ + block] = value;
                }
            }
        }
    }

    // From the gradients of the factors, which those of the first axis lose the content in, to all they are made of.
    void write_backward(Index step, Index sequence) {
        const Index at = sequence * sizes_.steps + step;
        const V *content = vectors(arrays_.content) + at * blocks_;
        V *grad_content = vectors(arrays_.grad_content) + at * blocks_;
        for (Index block = 0; block < blocks_; ++block) {
            V sum{};
            for (Index i = block; i < sizes_.grid[0] * blocks_; i += blocks_) {
                sum += grad_factors_[i] * first_factor_[i];
                grad_factors_[i] *= content[block];
            }
            grad_content[block] = sum;
        }
        const T sigma = arrays_.sigma[at], width = 2 * sigma * sigma + T(1e-6);
        T grad_width = 0;
        for (Index axis = 0; axis < axes_; ++axis) {
            const Index places = sizes_.grid[axis];
            const T *values = profile(axis);
            const V *taps = setup_.taps(axis), *grad = grad_factors_ + setup_.start_of[axis] * blocks_;
            T grad_coordinate = 0;
            for (Index place = 0; place < places; ++place) {
                V sum{};
                for (Index block = 0; block < blocks_; ++block) {
                    const V value = grad[place * blocks_ + block];
                    if (!taps) {
                        sum += value;
                        continue;
                    }
                    V *total = total_taps + 6 * axis * blocks_ + block;
                    total[0] += value * values[place - 1];
                    total[2 * blocks_] += value * values[place];
                    total[4 * blocks_] += value * values[place + 1];
                    sum += value * taps[2 * blocks_ + block];
                    if (place > 0) sum += grad[(place - 1) * blocks_ + block] * taps[4 * blocks_ + block];
                    if (place < places - 1) sum += grad[(place + 1) * blocks_ + block] * taps[block];
                }
                if (sizes_.hard) continue;
                const T offset = arrays_.positions[setup_.start_of[axis] + place] - arrays_.write_coordinates[at * axes_ + axis];
                const T through = sum_of<T>(sum) * values[place] * offset / width;
                grad_coordinate += 2 * through;
                grad_width += through * offset / width;
            }
            arrays_.grad_write_coordinates[at * axes_ + axis] = grad_coordinate;
        }
        arrays_.grad_sigma[at] = 4 * sigma * grad_width;
    }

    // What the pointwise map takes; what the hidden half goes through stays in chain_.
    void mix(const V *h) {
        const V *bias = setup_.bias_volume;
        for (Index axis = 0, rows = 1; axis + 1 < axes_; rows *= sizes_.grid[axis++]) {
            const V *factor = factors_ + setup_.start_of[axis] * blocks_;
            V *out = prefixes_[axis + 1];
            for (Index row = 0; row < rows; ++row) {
                const V *prefix = prefixes_[axis] + row * blocks_;
                for (Index place = 0; place < sizes_.grid[axis]; ++place) {
                    for (Index block = 0; block < blocks_; ++block) {
                        *out++ = prefix[block] * factor[place * blocks_ + block];
                    }
                }
            }
        }
        const V *hidden = h;
        if (arrays_.taps) {
            for (Index axis = 0, inner = points_; axis + 1 < axes_; ++axis) {
                inner /= sizes_.grid[axis];
                convolve(hidden, setup_.taps(axis) + blocks_, sizes_.grid[axis], inner, chain_[axis]);
                hidden = chain_[axis];
            }
        }
        const V *taps = arrays_.taps ? setup_.taps(axes_ - 1) + blocks_ : nullptr;
        const V *factor = factors_ + setup_.start_of[axes_ - 1] * blocks_;
        const Index rows = points_ / last_;
        for (Index row = 0; row < rows; ++row) {
            const V *prefix = prefixes_[axes_ - 1] + row * blocks_;
            for (Index place = 0; place < last_; ++place) {
                const Index point = row * last_ + place;
                const V *at = hidden + point * blocks_;
                const V *before = place ? at - blocks_ : zeros_, *after = place + 1 < last_ ? at + blocks_ : zeros_;
                const V *bias_at = bias + 2 * point * blocks_;
                V *out = mixed_ + 2 * point * blocks_;
                for (Index block = 0; block < blocks_; ++block) {
                    out[block] = prefix[block] * factor[place * blocks_ + block] + bias_at[block];
                    V value = at[block];
                    if (taps) {
                        value = value * taps[2 * blocks_ + block] + before[block] * taps[block] +
                                after[block] * taps[4 * blocks_ + block];
                    }
                    out[blocks_ + block] = value + bias_at[blocks_ + block];
                }
            }
        }
    }

    // Three taps, two vectors apart for each block, along an axis of so many places, inner points apart.
    void convolve(const V *x, const V *taps, Index places, Index inner, V *out) {
        const Index stride = inner * blocks_, outer = points_ / (places * inner);
        for (Index row = 0; row < outer * places; ++row) {
            const Index place = row % places;
            const V *at = x + row * stride;
            const V *before = place ? at - stride : zeros_, *after = place + 1 < places ? at + stride : zeros_;
            V *to = out + row * stride;
            for (Index point = 0; point < inner; ++point) {
                for (Index block = 0; block < blocks_; ++block) {
                    const Index i = point * blocks_ + block;
                    to[i] = at[i] * taps[2 * blocks_ + block] + before[i] * taps[block] + after[i] * taps[4 * blocks_ + block];
                }
            }
        }
    }

    // The gradients of what `convolve` took: x's to out, that of the taps to their total. The gradient's points lie
    // spacing vectors apart.
    void convolve_backward(
        const V *grad, Index spacing, const V *x, const V *taps, Index places, Index inner, V *out, V *total) {
        const Index outer = points_ / (places * inner);
        for (Index block = 0; block < blocks_; ++block) {
            const V tap0 = taps[block], tap1 = taps[2 * blocks_ + block], tap2 = taps[4 * blocks_ + block];
            V sum0{}, sum1{}, sum2{};
            for (Index row = 0; row < outer * places; ++row) {
                const Index place = row % places;
                const V *grad_at = grad + row * inner * spacing + block, *at = x + row * inner * blocks_ + block;
                const V *grad_before = grad_at - inner * spacing, *before = at - inner * blocks_;
                const V *grad_after = grad_at + inner * spacing, *after = at + inner * blocks_;
                if (place == 0) grad_before = before = zeros_;
                if (place == places - 1) grad_after = after = zeros_;
                V *to = out + row * inner * blocks_ + block;
                for (Index point = 0; point < inner; ++point) {
                    const Index i = point * blocks_, j = point * spacing;
                    const V value = grad_at[j];
                    sum0 += value * before[i];
                    sum1 += value * at[i];
                    sum2 += value * after[i];
                    to[i] = value * tap1 + grad_after[j] * tap0 + grad_before[j] * tap2;
                }
            }
            total[block] += sum0;
            total[2 * blocks_ + block] += sum1;
            total[4 * blocks_ + block] += sum2;
        }
    }

    // The pointwise map of a tile of rows, one block of channels, through its activations: i, f, o, g.
    template <int kRows>
    inline __attribute__((always_inline)) void gates_of(Index row, Index block, V (&gates)[kRows][4]) {
        const V *bias = setup_.bias + 4 * block;
        const V *weight = setup_.weight + block * 2 * channels_ * 4;
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
            for (int gate = 0; gate < 4; ++gate) gates[r][gate] = bias[gate];
        }
        const T *left = reinterpret_cast<const T *>(mixed_ + 2 * row * blocks_);
        multiply<kRows, 4>(Left<T>{left, 2 * channels_, 1}, weight, 4, 2 * channels_, gates);
    }

    static inline __attribute__((always_inline)) void activate(V (&gates)[4]) {
#pragma GCC unroll 4
        for (int gate = 0; gate < 3; ++gate) gates[gate] = sigmoid_of(gates[gate]);
        gates[3] = tanh_of(gates[3]);
    }

    // The next state from what is mixed; h and c may be written over.
    template <Gates kGates>
    void update(const V *c, V *next_h, V *next_c, V *kept_gates, V *kept_squashed) {
        for (Index block = 0; block < blocks_; ++block) {
            in_tiles<kRows4>(0, points_, [&]<int kRows>(Index row) {
                V gates[kRows][4];
                gates_of<kRows>(row, block, gates);
#pragma GCC unroll 1
                for (int r = 0; r < kRows; ++r) {
                    V gate[4] = {gates[r][0], gates[r][1], gates[r][2], gates[r][3]};
                    activate(gate);
                    const Index at = (row + r) * blocks_ + block;
                    const V new_c = gate[1] * c[at] + gate[0] * gate[3], squashed = tanh_of(new_c);
                    next_c[at] = new_c;
                    next_h[at] = gate[2] * squashed;
                    if constexpr (kGates == Gates::kHere) {
                        for (int k = 0; k < 4; ++k) kept_gates[4 * at + k] = gate[k];
                        kept_squashed[at] = squashed;
                    } else if constexpr (kGates == Gates::kKept) {
                        for (int k = 0; k < 4; ++k) stream(kept_gates + 4 * at + k, gate[k]);
                        stream(kept_squashed + at, squashed);
                    }
                }
            });
        }
    }

    template <bool kKept>
    void step_backward(
        Index step, Index sequence, const V *h, const V *c, const V *kept_gates, const V *kept_squashed, V *grad_h,
        V *grad_c) {
        prepare_write(step, sequence);
        mix(h);
        for (Index first = 0; first < points_; first += kRowsTogether) {
            const Index last = std::min(first + kRowsTogether, points_);
            for (Index block = 0; block < blocks_; ++block) {
                V sums[4] = {};
                auto through = [&](V (&gate)[4], V squashed, Index row) {
                    const Index at = row * blocks_ + block;
                    const V i = gate[0], f = gate[1], o = gate[2], g = gate[3], from_h = grad_h[at];
                    const V through_c = grad_c[at] + from_h * o * (1 - squashed * squashed);
                    const V grads[4] = {
                        through_c * g * i * (1 - i), through_c * c[at] * f * (1 - f), from_h * squashed * o * (1 - o),
                        through_c * i * (1 - g * g)};
                    grad_c[at] = through_c * f;
                    V *out = grad_pre_ + 4 * ((row - first) * blocks_ + block);
                    for (int k = 0; k < 4; ++k) {
                        out[k] = grads[k];
                        sums[k] += grads[k];
                    }
                };
                if constexpr (kKept) {
                    for (Index row = first; row < last; ++row) {
                        const V *kept = kept_gates + 4 * (row * blocks_ + block);
                        V gate[4] = {kept[0], kept[1], kept[2], kept[3]};
                        through(gate, kept_squashed[row * blocks_ + block], row);
                    }
                } else {
                    in_tiles<kRows4>(first, last, [&]<int kRows>(Index row) {
                        V gates[kRows][4];
                        gates_of<kRows>(row, block, gates);
#pragma GCC unroll 1
                        for (int r = 0; r < kRows; ++r) {
                            V gate[4] = {gates[r][0], gates[r][1], gates[r][2], gates[r][3]};
                            activate(gate);
                            const V new_c = gate[1] * c[(row + r) * blocks_ + block] + gate[0] * gate[3];
                            through(gate, tanh_of(new_c), row + r);
                        }
                    });
                }
                for (int k = 0; k < 4; ++k) total_bias[4 * block + k] += sums[k];
            }
            if (blocks_ % 2) {
                products_backward<2, kRows2>(first, last);
            } else {
                products_backward<4, kRows4>(first, last);
            }
        }
        factors_backward();
        write_backward(step, sequence);
        hidden_backward(h, grad_h);
        read_backward(h, grad_h, step, sequence);
    }

    // From the gradient of the pointwise map's output for some rows: those of what is mixed and of the weight.
    template <int kColumns, int kMost>
    void products_backward(Index first, Index last) {
        const Index panels = 2 * blocks_ / kColumns, outputs = 4 * channels_;
        const T *grad_pre = reinterpret_cast<const T *>(grad_pre_);
        for (Index panel = 0; panel < panels; ++panel) {
            const V *weight = setup_.weight_backward + panel * outputs * kColumns;
            in_tiles<kMost>(first, last, [&]<int kRows>(Index row) {
                V sums[kRows][kColumns] = {};
                const Left<T> left{grad_pre + (row - first) * outputs, outputs, 1};
                multiply<kRows, kColumns>(left, weight, kColumns, outputs, sums);
                for (int r = 0; r < kRows; ++r) {
                    const Index at = 2 * (row + r) * blocks_ + panel * kColumns;
                    for (int column = 0; column < kColumns; ++column) {
                        grad_mixed_[at + column] = sums[r][column];
                        total_mixed[at + column] += sums[r][column];
                    }
                }
            });
            const V *mixed = mixed_ + 2 * first * blocks_ + panel * kColumns;
            in_tiles<(kRegisters >= 32 ? 16 : 12) / kColumns>(0, outputs, [&]<int kRows>(Index output) {
                V sums[kRows][kColumns];
                V *total = total_weight + output * 2 * blocks_ + panel * kColumns;
#pragma GCC unroll 16
                for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
                    for (int column = 0; column < kColumns; ++column) sums[r][column] = total[r * 2 * blocks_ + column];
                }
                const Left<T> left{grad_pre + output, 1, outputs};
                multiply<kRows, kColumns>(left, mixed, 2 * blocks_, last - first, sums);
#pragma GCC unroll 16
                for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
                    for (int column = 0; column < kColumns; ++column) total[r * 2 * blocks_ + column] = sums[r][column];
                }
            });
        }
    }

    // Axis by axis from the last: what is left of the volume shrinks as its axes are summed away.
    void factors_backward() {
        std::fill_n(grad_factors_, num_factors_ * blocks_, V{});
        const V *rest = grad_mixed_;
        Index spacing = 2 * blocks_, rows = points_;
        for (Index axis = axes_ - 1; axis >= 0; --axis) {
            const Index places = sizes_.grid[axis];
            rows /= places;
            const V *factor = factors_ + setup_.start_of[axis] * blocks_;
            V *grad = grad_factors_ + setup_.start_of[axis] * blocks_, *next = rests_[axis % 2];
            for (Index row = 0; row < rows; ++row) {
                for (Index block = 0; block < blocks_; ++block) {
                    const V prefix = prefixes_[axis][row * blocks_ + block];
                    V sum{};
                    for (Index place = 0; place < places; ++place) {
                        const V value = rest[(row * places + place) * spacing + block];
                        grad[place * blocks_ + block] += value * prefix;
                        sum += value * factor[place * blocks_ + block];
                    }
                    if (axis) next[row * blocks_ + block] = sum;
                }
            }
            rest = next;
            spacing = blocks_;
        }
    }

    void hidden_backward(const V *h, V *grad_h) {
        const V *grad = grad_mixed_ + blocks_;
        if (!arrays_.taps) {
            for (Index point = 0; point < points_; ++point) {
                std::copy_n(grad + 2 * point * blocks_, blocks_, grad_h + point * blocks_);
            }
            return;
        }
        Index spacing = 2 * blocks_, inner = 1;
        for (Index axis = axes_ - 1; axis >= 0; --axis) {
            V *out = axis ? grads_[axis % 2] : grad_h;
            const V *x = axis ? chain_[axis - 1] : h, *taps = setup_.taps(axis) + blocks_;
            convolve_backward(
                grad, spacing, x, taps, sizes_.grid[axis], inner, out, total_taps + (6 * axis + 1) * blocks_);
            inner *= sizes_.grid[axis];
            grad = out;
            spacing = blocks_;
        }
    }
};

// The sums of all threads, in the parameters' own layout.
template <typename T>
void collect(const Setup<T> &setup, Worker<T> *workers, Index threads) {
    Worker<T> &first = workers[0];
    for (Index thread = 1; thread < threads; ++thread) {
        for (Index i = 0; i < first.num_totals; ++i) first.total_weight[i] += workers[thread].total_weight[i];
    }
    const Index channels = setup.channels;
    const T *weight = reinterpret_cast<const T *>(first.total_weight), *bias = reinterpret_cast<const T *>(first.total_bias);
    for (Index gate = 0; gate < 4; ++gate) {
        for (Index channel = 0; channel < channels; ++channel) {
            const Index from = (4 * (channel / kLanes<T>) + gate) * kLanes<T> + channel % kLanes<T>;
            const Index to = gate * channels + channel;
            std::copy_n(weight + from * 2 * channels, 2 * channels, setup.arrays.grad_weight + to * 2 * channels);
            setup.arrays.grad_bias[to] = bias[from];
        }
    }
    if (!setup.arrays.taps) return;
    std::copy_n(first.total_taps, 6 * setup.axes * setup.blocks, reinterpret_cast<Vector<T> *>(setup.arrays.grad_taps));
    std::fill_n(setup.arrays.grad_taps_bias, 2 * setup.axes * channels, T{});
    setup.bias_volume_backward(first.total_mixed);
}

template <typename T>
Index scratch_size(const Sizes &sizes, bool backward) {
    const Arrays<T> none{};
    Room<Vector<T>> shared{nullptr}, own{nullptr};
    Setup<T> setup(sizes, none, backward, shared);
    Worker<T>(setup).claim(own);
    return (shared.taken + sizes.threads * own.taken) * kLanes<T>;
}

// GNU's OpenMP, or LLVM's in its name, where PyTorch has loaded it.
extern "C" void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags) __attribute__((weak));

// Each part in a thread of its own: one of PyTorch's own where they can be had, from any compiler, for new threads would
// share the cores with those of PyTorch that wait for work.
template <typename Part>
void in_parts(Index parts, const Part &run_part) {
    struct Team {
        const Part &run_part;
        const Index parts;
        std::atomic<Index> next{0};
    } team{run_part, parts};
    auto body = [](void *data) {
        Team &mine = *static_cast<Team *>(data);
        for (Index part; (part = mine.next++) < mine.parts;) mine.run_part(part);
    };
    if (GOMP_parallel) {
        GOMP_parallel(body, &team, static_cast<unsigned>(parts), 0);
        return;
    }
    std::vector<std::thread> threads;
    for (Index part = 1; part < parts; ++part) threads.emplace_back(body, &team);
    body(&team);
    for (std::thread &thread : threads) thread.join();
}

template <typename T>
void run(const Sizes &sizes, const Arrays<T> &arrays, bool backward) {
    Room<Vector<T>> room{reinterpret_cast<Vector<T> *>(arrays.scratch)};
    Setup<T> setup(sizes, arrays, backward, room);
    setup.prepare();
    std::vector<Worker<T>> workers;
    for (Index thread = 0; thread < sizes.threads; ++thread) {
        workers.emplace_back(setup);
        workers.back().claim(room);
    }
    // Which part adds up what doesn't change from call to call.
    in_parts(sizes.threads, [&](Index part) {
        workers[part].prepare();
        const Index first = sizes.batch * part / sizes.threads, last = sizes.batch * (part + 1) / sizes.threads;
        for (Index sequence = first; sequence < last; ++sequence) {
            if (backward) {
                workers[part].backward(sequence);
            } else {
                workers[part].forward(sequence);
            }
        }
    });
    if (backward) collect(setup, workers.data(), sizes.threads);
}

}  // namespace

extern "C" {

int64_t vector_bytes() { return kVectorBytes; }
int64_t shares_threads() { return GOMP_parallel != nullptr; }

int64_t scratch_size_float(const Sizes *sizes, int backward) { return scratch_size<float>(*sizes, backward); }
int64_t scratch_size_double(const Sizes *sizes, int backward) { return scratch_size<double>(*sizes, backward); }

void run_float(const Sizes *sizes, const Arrays<float> *arrays, int backward) { run(*sizes, *arrays, backward); }
void run_double(const Sizes *sizes, const Arrays<double> *arrays, int backward) { run(*sizes, *arrays, backward); }
}
