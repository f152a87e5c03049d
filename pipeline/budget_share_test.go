package pipeline

import "testing"

func TestBuffersOfPipelinesThatBeginOneAfterTheOtherFitTheBudget(t *testing.T) {
	b := NewBudget(1 << 30)
	b.Expect(10)
	var sum int64
	for range 10 {
		sum += b.join().buffers()
	}
	if sum > b.Total()/2 || sum < b.Total()/2-10 {
		t.Errorf("ten pipelines may hold %d bytes of %d", sum, b.Total())
	}
}
